"""What coding saves of a training job's checkpoints on their way, what it costs both ends, and up to which rate that pays.

Checkpoints of the transformer in docs/examples, trained here: 32-bit weights and bf16 ones, each with AdamW; or files of one's
own, one job's checkpoints in their order. Each is sent, on paper, to a receiver that has the one before, in the chunks of a
store, by every way. Ways take turns, since a machine's speed changes from second to second; everything is decoded and compared.

    deduplication   chunks that the receiver has are left out: what transfers did before they coded
    zstd N          each chunk compressed at level N
    planes          byte n of every four, each group by itself, before that
    delta           the chunk XORed with the bytes at its place in the checkpoint before
    zipnn           the package of that name, where it is installed: exponents apart, Huffman
    transfers       what `testbed.transfer.coding` makes of it, choice of the way of each chunk and files included

*Pays below*: a sender codes while it sends and a receiver decodes while it receives, so coding shortens a transfer as long as
the link is slower than the slower of the two. Processor seconds are those of one core here.
"""

from __future__ import annotations

import importlib.util
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import zstandard
from blake3 import blake3
from rich.table import Table

from experiments.benchmarks.results import write_result
from testbed.checkpoints.manifest import CHUNK_BYTES, DIGEST_BYTES, MAX_CHUNKS, Manifest
from testbed.errors import SetupError
from testbed.transfer.coding import HEADER, ChunkDecoder, ChunkEncoder
from testbed.workloads.base import load_workload
from topologies.units import format_rate, format_size

EXAMPLES: Final = Path(__file__).parents[2] / "docs/examples"
# steps between two checkpoints: P1's interval of a job whose steps are short or long
APART: Final = (1, 10, 50)
FIRST_STEP: Final = 50  # training has left its first, quick part
ROUNDS: Final = 5
LEVELS: Final = (1, 3, 9)
WIDTH: Final = 4

Coded = list[bytes]


@dataclass(frozen=True, slots=True)
class CodecWay:
    """How a payload is coded, given the one before, and brought back."""

    name: str
    encode: Callable[[bytes, bytes], Coded]
    decode: Callable[[Coded, bytes, int], bytes]


def measure_codecs(out: Path, files: Sequence[Path] = (), *, quick: bool = False) -> dict[str, Any]:
    """Runs the comparison; writes `codecs.json` into `out` and returns what it holds.

    `files`: checkpoints of one job, each coded against the one before; none: the example is trained. SetupError: there is nothing
    to measure, or PyTorch is missing.
    """
    pairs = _pairs(files) if files else _trained(quick=quick)
    rows: list[dict[str, Any]] = []
    # times are medians over the rounds, in which the ways take turns
    for content, base, data in pairs:
        ways = [CodecWay("deduplication", _deduplicated, _found_again)]
        ways += [_zstd(f"zstd {n}", n, planes=False, delta=False) for n in LEVELS]
        ways += [_zstd(f"planes, zstd {n}", n, planes=True, delta=False) for n in LEVELS]
        ways += [_zstd("delta, zstd 1", 1, planes=False, delta=True)]
        ways += [_zstd(f"delta, planes, zstd {n}", n, planes=True, delta=True) for n in LEVELS]
        # zipnn 0.5.4 reads past the end of what is no whole number of elements
        if importlib.util.find_spec("zipnn") is not None and len(data) % WIDTH == 0:
            ways += [
                _zipnn(dtype, delta=delta) for delta in (False, True) for dtype in ("float32", "bfloat16")
            ]
        ways.append(_transfers(data, base))
        encode_s: dict[str, list[float]] = {way.name: [] for way in ways}
        decode_s: dict[str, list[float]] = {way.name: [] for way in ways}
        wire_bytes: dict[str, int] = {}
        for _ in range(1 if quick else ROUNDS):
            for way in ways:
                began_s = time.process_time()
                coded = way.encode(data, base)
                coded_s = time.process_time()
                back = way.decode(coded, base, len(data))
                encode_s[way.name].append(coded_s - began_s)
                decode_s[way.name].append(time.process_time() - coded_s)
                wire_bytes[way.name] = sum(map(len, coded))
                if back != data:
                    raise SetupError(f"{way.name} does not bring {content} back")
        for way in ways:
            to_s, from_s = statistics.median(encode_s[way.name]), statistics.median(decode_s[way.name])
            shrinks = wire_bytes[way.name] < len(data)
            rows.append(
                {
                    "content": content,
                    "way": way.name,
                    "plain_bytes": len(data),
                    "wire_bytes": wire_bytes[way.name],
                    "encode_s_per_gb": to_s / len(data) * 1e9,
                    "decode_s_per_gb": from_s / len(data) * 1e9,
                    "pays_below_bytes_per_s": len(data) / max(to_s, from_s, 1e-9) if shrinks else None,
                }
            )
    result = {"chunk_bytes": CHUNK_BYTES, "rows": rows, "load": os.getloadavg()[0], "cpus": os.cpu_count()}
    write_result(out / "codecs.json", result)
    return result


def codecs_table(result: Mapping[str, Any]) -> Table:
    """A row each content and way."""
    table = Table(
        "checkpoint",
        "way",
        "on the wire",
        "left",
        "sender, s/GB",
        "receiver, s/GB",
        "pays below",
        title=f"load {result['load']:.1f} on {result['cpus']} cores",
    )
    before = None
    for row in result["rows"]:
        first = row["content"] != before
        if first and before is not None:
            table.add_section()
        before = row["content"]
        pays = row["pays_below_bytes_per_s"]
        table.add_row(
            f"{row['content']}, {format_size(row['plain_bytes'])}" if first else "",
            row["way"],
            format_size(row["wire_bytes"]),
            f"{row['wire_bytes'] / row['plain_bytes']:.1%}",
            f"{row['encode_s_per_gb']:.2f}",
            f"{row['decode_s_per_gb']:.2f}",
            "never" if pays is None else format_rate(pays),
        )
    return table


# ---------------------------------------------------------------- contents


def _pairs(files: Sequence[Path]) -> list[tuple[str, bytes, bytes]]:
    if len(files) < 2:
        raise SetupError("two checkpoints of a job at least: each is coded against the one before")
    contents = []
    for path in files:
        try:
            contents.append(path.read_bytes())
        except OSError as error:
            raise SetupError(f"{path}: {error.strerror}") from error
        if not 0 < len(contents[-1]) <= MAX_CHUNKS * CHUNK_BYTES:
            raise SetupError(f"{path}: {len(contents[-1])} bytes are no checkpoint")
    return [
        (f"{files[n].name} after {files[n - 1].name}", contents[n - 1], contents[n])
        for n in range(1, len(files))
    ]


def _trained(*, quick: bool) -> list[tuple[str, bytes, bytes]]:
    """Checkpoints of the example, so many steps apart."""
    if importlib.util.find_spec("torch") is None:
        raise SetupError(
            "PyTorch is not installed (the extra 'torch'): name checkpoint files to measure those"
        )
    if not (EXAMPLES / "transformer.py").is_file():
        raise SetupError(f"{EXAMPLES} has no transformer.py: name checkpoint files to measure those")
    sys.path.insert(0, str(EXAMPLES))
    found = []
    first, apart = (2, (1,)) if quick else (FIRST_STEP, APART)
    with tempfile.TemporaryDirectory(prefix="reclaimnet-codecs-") as folder:
        path = Path(folder) / "checkpoint"
        for words, bf16 in (("32-bit weights, AdamW", 0), ("bf16 weights, AdamW", 1)):
            job = load_workload("transformer:Transformer", {"steps": 1000, "seed": 1, "bf16": bf16})
            taken: dict[int, bytes] = {}
            with redirect_stdout(io.StringIO()):
                job.begin()
                for step in sorted({first, *(first + steps for steps in apart)}):
                    while job.step_number < step:
                        job.step()
                    job.save(path)
                    taken[step] = path.read_bytes()
            found += [
                (f"{words}, {steps} step{'s' * (steps > 1)} later", taken[first], taken[first + steps])
                for steps in apart
            ]
    sys.path.remove(str(EXAMPLES))
    return found


# ---------------------------------------------------------------- ways


def _chunks(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def _deduplicated(data: bytes, base: bytes) -> Coded:
    known = {blake3(chunk).digest() for chunk in _chunks(base)}
    return [b"" if blake3(chunk).digest() in known else chunk for chunk in _chunks(data)]


def _found_again(coded: Coded, base: bytes, _: int) -> bytes:
    # equal chunks of a job's checkpoints lie at the same place
    return b"".join(chunk or before for chunk, before in zip(coded, [*_chunks(base), *coded], strict=False))


def _zstd(name: str, level: int, *, planes: bool, delta: bool) -> CodecWay:
    compressor, decompressor = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    width = WIDTH if planes else 1

    def encode(data: bytes, base: bytes) -> Coded:
        coded = []
        for at in range(0, len(data), CHUNK_BYTES):
            chunk = (
                _difference(data, base, at) if delta else np.frombuffer(data[at : at + CHUNK_BYTES], np.uint8)
            )
            for n in range(width):
                plane = chunk[n::width].tobytes()
                smaller = compressor.compress(plane)
                coded.append(smaller if len(smaller) < len(plane) else plane)
        return coded

    def decode(coded: Coded, base: bytes, length: int) -> bytes:
        data = np.empty(length, np.uint8)
        for number, at in enumerate(range(0, length, CHUNK_BYTES)):
            chunk = data[at : at + CHUNK_BYTES]
            for n in range(width):
                plane, part = chunk[n::width], coded[number * width + n]
                plain = part if len(part) == len(plane) else decompressor.decompress(part)
                plane[:] = np.frombuffer(plain, np.uint8)
            if delta:
                chunk[:] = _difference(chunk.tobytes(), base[at : at + CHUNK_BYTES], 0)
        return data.tobytes()

    return CodecWay(name, encode, decode)


def _difference(data: bytes, base: bytes, at: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A chunk XORed with what of the base lies at its place."""
    chunk = np.frombuffer(data[at : at + CHUNK_BYTES], np.uint8).copy()
    before = np.frombuffer(base[at : at + len(chunk)], np.uint8)
    chunk[: len(before)] ^= before
    return chunk


def _zipnn(dtype: str, *, delta: bool) -> CodecWay:
    from zipnn import ZipNN

    coder = ZipNN(input_format="byte", bytearray_dtype=dtype, threads=1)

    def encode(data: bytes, base: bytes) -> Coded:
        given = _all_differences(data, base) if delta else data
        return [bytes(coder.compress(bytearray(given)))]

    def decode(coded: Coded, base: bytes, _: int) -> bytes:
        back = bytes(coder.decompress(bytearray(coded[0])))
        return _all_differences(back, base) if delta else back

    return CodecWay(f"{'delta, ' * delta}zipnn {dtype}", encode, decode)


def _all_differences(data: bytes, base: bytes) -> bytes:
    return b"".join(_difference(data, base, at).tobytes() for at in range(0, len(data), CHUNK_BYTES))


def _transfers(data: bytes, base: bytes) -> CodecWay:
    """Transfer from and to files, as the testbed does it; the files are there before."""
    file, before = (tempfile.TemporaryFile(buffering=0) for _ in range(2))  # noqa: SIM115 - they live as long as the way
    file.write(data)
    before.write(base)
    chunks = [bytes(DIGEST_BYTES)] * len(_chunks(data))
    manifest = Manifest.of("measured", 2, 2, len(data), CHUNK_BYTES, chunks)

    def encode(data: bytes, base: bytes) -> Coded:
        encoder = ChunkEncoder(manifest, file.fileno(), before.fileno())
        return [encoder.encode([chunk]) for chunk in range(len(chunks))]

    def decode(coded: Coded, base: bytes, length: int) -> bytes:
        decoder, found = ChunkDecoder(before.fileno()), []
        for number, part in enumerate(coded):
            method, _ = HEADER.unpack_from(part)
            found.append(decoder.decode(method, part[HEADER.size :], *manifest.span(number)))
        return b"".join(found)

    return CodecWay("transfers", encode, decode)
