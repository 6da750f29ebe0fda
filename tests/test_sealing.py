"""Sealed records: only the very record that was sealed at that place, in that connection, is opened."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from testbed.checkpoints import Reception
from testbed.transfer.messages import Contents, Describe, Message, TransferFailed
from testbed.trust.sealing import END, TAG_BYTES, Opener, Sealer, new_key
from testbed.wire import Channel
from tests import stores as small
from tests.stores import CHUNK, Stores, grants_leases, stores_in, take
from tests.test_transfer import content, receiver, relay, serving

pytestmark = pytest.mark.alone
Records = list[bytes]
CHUNKS = 5
DATA = small.content(CHUNKS, tail=99)


@pytest.fixture(params=["disk", "memory"])
def reception(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reception]:
    """A reception of DATA into a file, and into one that is mapped."""
    folder = Path("/dev/shm") if request.param == "memory" else tmp_path
    with TemporaryDirectory(prefix="reclaimnet-test-", dir=folder) as at, stores_in(Path(at)) as stores:
        if request.param == "memory":
            if not grants_leases(Path(at)):
                pytest.skip("this file system grants no leases: nothing is written over")
            _two_before(stores)
        yielded = stores.begin(DATA, 3)
        assert (yielded.memory is not None) is (request.param == "memory")
        yield yielded
        yielded.abandon()


def _two_before(stores: Stores) -> None:
    for sequence in (1, 2):
        stores.receive(small.content(CHUNKS, seed=sequence, tail=99), sequence)
        if sequence > 1:
            stores.standby.drop("job", sequence - 1, keep_file=True)


def sealed(key: bytes, data: bytes = DATA) -> Records:
    """Return the records of a transfer of all chunks."""
    sealer, records = Sealer(key), []
    for chunk in (*range(-(-len(data) // CHUNK)), END):
        plain = b"" if chunk == END else small.span(data, chunk)
        record = bytearray(plain + bytes(TAG_BYTES))
        sealer.seal(chunk, memoryview(record))
        records.append(bytes(record))
    return records


def test_sealed_chunks_arrive_to_the_byte(reception: Reception) -> None:
    key = new_key()
    take(reception, b"".join(sealed(key)), Opener(key))
    reception.commit()


def test_no_two_records_are_alike_though_their_chunks_are() -> None:
    records = sealed(new_key(), bytes(CHUNKS * CHUNK))
    assert len({record[:16] for record in records}) == len(records)


def flipped(at: int, byte: int) -> Callable[[Records, Records], Records]:
    return lambda ours, _: [
        record if n != at else bytes([*record[:byte], record[byte] ^ 1, *record[byte + 1 :]])
        for n, record in enumerate(ours)
    ]


ATTACKS: dict[
    str, tuple[int, Callable[[Records, Records], Records]]
] = {  # name: (chunks that were good before it, change)
    "a flipped bit of the first chunk": (0, flipped(0, 7)),
    "a flipped bit of a later chunk": (2, flipped(2, 0)),
    "a flipped bit of a tag": (3, flipped(3, CHUNK + 3)),
    "a flipped bit of the end": (CHUNKS + 1, flipped(CHUNKS + 1, 5)),
    "two chunks swapped": (1, lambda ours, _: [ours[0], ours[2], ours[1], *ours[3:]]),
    "a chunk of another transfer": (2, lambda ours, other: [*ours[:2], other[2], *ours[3:]]),
    "a whole other transfer": (0, lambda _, other: other),
    "a chunk repeated": (2, lambda ours, _: [*ours[:2], ours[1], *ours[3:]]),
    "a chunk left out": (2, lambda ours, _: [*ours[:2], *ours[3:]]),
    "the end too early": (2, lambda ours, _: [*ours[:2], ours[-1] + bytes(CHUNK)]),
    "a cut after a record": (3, lambda ours, _: ours[:3]),
    "a cut within a record": (3, lambda ours, _: [*ours[:3], ours[3][:100]]),
    "a cut before the end": (CHUNKS + 1, lambda ours, _: ours[:-1]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_changed_records_are_refused_and_what_came_before_counts(reception: Reception, attack: str) -> None:
    good, change = ATTACKS[attack]
    key = new_key()
    with pytest.raises(TransferFailed, match=r"was changed on its way|before the end") as caught:
        take(reception, b"".join(change(sealed(key), sealed(new_key()))), Opener(key))
    assert caught.value.retryable
    assert reception.missing == list(range(good, CHUNKS + 1))


def test_a_replayed_connection_opens_under_no_other_key_and_a_record_as_no_other_chunk(reception: Reception) -> None:
    record, into = memoryview(sealed(key := new_key())[0]), memoryview(bytearray(CHUNK))
    assert [Opener(key).open(chunk, record, into) for chunk in (1, 0)] == [False, True]
    with pytest.raises(TransferFailed, match="chunk 0 was changed"):
        take(reception, b"".join(sealed(new_key())), Opener(new_key()))
    assert len(reception.missing) == CHUNKS + 1


async def test_nothing_of_a_checkpoint_is_on_the_wire_and_its_next_sends_only_changes(tmp_path: Path) -> None:
    passed = bytearray()

    def listen(data: bytes, _: int) -> bytes:
        passed.extend(data)
        return data

    async with serving(tmp_path, is_sealed=True) as pair:
        data = content(9, tail=5)
        async with relay(pair.address, listen) as through:
            result = await pair.send(pair.ingest(data), is_sealed=True, address=through)
        assert result.bytes_sent == len(data) + 11 * TAG_BYTES  # ten chunks and the end
        assert not any(data[at : at + 16] in passed for at in range(0, len(data), 1 << 10))
        changed = data[:-5] + b"other"
        again = await pair.send(manifest := pair.ingest(changed, 2), is_sealed=True)
        assert again.bytes_sent == 5 + 2 * TAG_BYTES
        assert pair.target.payload(manifest).read_bytes() == changed


async def test_a_changed_bit_ends_that_attempt_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, is_sealed=True) as pair:
        manifest, at = pair.ingest(content(12)), 300_000

        def change(data: bytes, offset: int) -> bytes:
            if not offset <= at < offset + len(data):
                return data
            return data[: at - offset] + bytes([data[at - offset] ^ 64]) + data[at - offset + 1 :]

        async with relay(pair.address, change) as through:
            await pair.fails(manifest, "was changed on its way", retryable=True, is_sealed=True, address=through)
        assert pair.target.manifests() == []
        result = await pair.send(manifest, is_sealed=True)
        assert 0 < result.bytes_deduplicated < len(content(12))


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_host_that_takes_chunks_otherwise_says_so(tmp_path: Path, is_sealed: bool) -> None:
    async with serving(tmp_path, is_sealed=is_sealed) as pair:
        said = f"takes chunks {'sealed' if is_sealed else 'not sealed'}"
        await pair.fails(pair.ingest(content(1)), said, retryable=False, is_sealed=not is_sealed)
        assert pair.target.manifests() == []


async def test_each_connection_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys: list[bytes] = []

    async def cut_off(channel: Channel[Message]) -> None:
        await channel.receive()
        await channel.send(Describe())
        contents = await channel.receive()
        assert isinstance(contents, Contents)
        keys.append(contents.key)

    async with serving(tmp_path, is_sealed=True) as pair, receiver(cut_off) as address:
        manifest = pair.ingest(content(1))
        for _ in range(2):
            await pair.fails(manifest, None, retryable=True, is_sealed=True, address=address)
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]


async def test_sealed_bytes_of_a_granted_trickle_arrive(tmp_path: Path) -> None:
    """A flow that may hand over a few bytes at a time cuts its records anywhere."""

    async def little() -> int:
        await trio.lowlevel.checkpoint()
        return 30_000

    async with serving(tmp_path, is_sealed=True) as pair:
        data = content(4, tail=9)
        manifest = pair.ingest(data)
        await pair.send(manifest, is_sealed=True, allowance=little)
        assert pair.target.payload(manifest).read_bytes() == data


def test_length_of_a_record_is_its_chunk_and_a_tag() -> None:
    assert [len(record) for record in sealed(os.urandom(32))] == [CHUNK + 16] * CHUNKS + [99 + 16, 16]
