"""The ctypes mirror against the BTF of the compiled objects, through libbpf's own reader."""

import ctypes
import os

import pytest

from bpf import build, layout
from bpf.errors import BpfError
from bpf.library import libbpf

BTF_KIND_STRUCT = 4


class BtfType(ctypes.Structure):
    _fields_ = [("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size", ctypes.c_uint32)]


class BtfMember(ctypes.Structure):
    _fields_ = [("name", ctypes.c_uint32), ("type", ctypes.c_uint32), ("offset_bits", ctypes.c_uint32)]


def structs_of(program: str) -> dict[str, tuple[int, dict[str, tuple[int, int]]]]:
    """name -> (size, field -> (offset, size)) of every mirrored struct in an object's BTF."""
    library = libbpf()
    btf = library.btf__parse_elf(os.fsencode(build.built(program)), None)
    assert btf
    try:
        found = {}
        for name in layout.MIRRORED:
            number = library.btf__find_by_name_kind(btf, name.encode(), BTF_KIND_STRUCT)
            if number > 0:
                found[name] = read_struct(btf, number)
        return found
    finally:
        library.btf__free(btf)


def read_struct(btf: int, number: int) -> tuple[int, dict[str, tuple[int, int]]]:
    library = libbpf()
    address = library.btf__type_by_id(btf, number)
    head = BtfType.from_address(address)
    members = (BtfMember * (head.info & 0xFFFF)).from_address(address + ctypes.sizeof(BtfType))
    fields = {}
    for member in members:
        name = library.btf__name_by_offset(btf, member.name).decode()
        fields[name] = member.offset_bits // 8, library.btf__resolve_size(btf, member.type)
    return head.size, fields


def mirrored(structure: type[ctypes.Structure]) -> tuple[int, dict[str, tuple[int, int]]]:
    fields = {name: getattr(structure, name) for name, *_ in structure._fields_}
    return ctypes.sizeof(structure), {name: (f.offset, f.size) for name, f in fields.items()}


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[int, dict[str, tuple[int, int]]]]:
    try:
        build.build()
    except BpfError as error:
        pytest.skip(str(error))
    return {name: fields for program in build.PROGRAMS for name, fields in structs_of(program).items()}


@pytest.mark.parametrize("name", layout.MIRRORED)
def test_ctypes_mirror_has_the_size_and_offsets_of_the_btf(compiled, name):
    assert mirrored(layout.MIRRORED[name]) == compiled[name]


def test_constants_of_the_header_are_those_of_the_mirror():
    header = (build.SOURCES / "reclaim.h").read_text()
    assert f"#define MAX_FLOWS {layout.MAX_FLOWS} " in header
    assert f"#define FIRST_PORT {layout.FIRST_PORT} " in header
    assert f"#define CREDIT_PER_BYTE {layout.CREDIT_PER_BYTE}LL" in header
    assert f"#define DEEPEST_DEBT_BYTES {layout.DEEPEST_DEBT_BYTES} " in header
    for prefix, enum in (("CLASS", layout.ClassId), ("MODE", layout.BucketMode), ("SWITCH", layout.Mode)):
        for member in enum:
            assert f"\t{prefix}_{member.name} = {member.value}," in header


def test_missing_compiler_is_said_with_the_package_that_brings_it(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    with pytest.raises(BpfError, match=r"apt install clang"):
        build.check_tools()


def test_fill_time_never_lets_the_product_of_rate_and_time_overflow():
    for rate in (1, 7, 125_000_000, layout.MAX_RATE_BYTES_PER_S):
        for burst in (0, 1, 262_144, layout.MAX_BURST_BYTES):
            longest_ns = layout.fill_ns(rate, burst) - 1
            assert burst * layout.CREDIT_PER_BYTE + rate * longest_ns < 1 << 63
            assert rate * (longest_ns + 1) >= (burst + layout.DEEPEST_DEBT_BYTES) * layout.CREDIT_PER_BYTE


def test_verifier_log_is_part_of_the_error_message():
    error = BpfError("load the egress program", 13, "R1 !read_ok")
    assert str(error) == "load the egress program: Permission denied (errno 13)\nR1 !read_ok"
