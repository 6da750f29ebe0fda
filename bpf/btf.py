"""The running kernel's own description of its types (BTF): where a member of a structure is, and what its numbers mean."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from bpf.errors import BpfError
from bpf.library import check_pointer, libbpf

KIND_STRUCT, KIND_UNION, KIND_ENUM = 4, 5, 6
_TYPE_BYTES, _MEMBER_WORDS, _ENUM_WORDS = (12, 3, 2)  # of struct btf_type, btf_member, btf_enum (uapi/linux/btf.h)
_COUNT_MASK, _BIT_MASK = 0xFFFF, 0xFFFFFF
_REASON_PREFIX = "SKB_DROP_REASON_"


@cache
def drop_reasons() -> Mapping[int, str]:
    """Return the kernel's reasons for dropping a packet, by number, as words ("qdisc drop"); empty if it names none."""
    with _kernel_types() as btf:
        found = libbpf().btf__find_by_name_kind(btf, b"skb_drop_reason", KIND_ENUM)
        if found < 0:
            return {}
        texts = {number: _name(btf, at) for at, number in _members(btf, found, _ENUM_WORDS)}
    return {
        number: text.removeprefix(_REASON_PREFIX).removeprefix("SKB_").replace("_", " ").lower()
        for number, text in texts.items()
    }


@cache
def member_offset_bytes(structure: str, member: str) -> int:
    """Return the byte offset of `member` in a structure, also within unnamed structures and unions. BpfError if there is none."""
    with _kernel_types() as btf:
        number = libbpf().btf__find_by_name_kind(btf, structure.encode(), KIND_STRUCT)
        bits = None if number < 0 else _offset_bits(btf, number, member)
    if bits is None:
        raise BpfError(f"this kernel's struct {structure} has no member {member}")
    return bits // 8


def _offset_bits(btf: int, number: int, member: str) -> int | None:
    for at, kind, offset in _members(btf, number, _MEMBER_WORDS):
        bits = offset & _BIT_MASK
        if _name(btf, at) == member:
            return bits
        if not at and _kind(btf, kind) in (KIND_STRUCT, KIND_UNION):
            within = _offset_bits(btf, kind, member)
            if within is not None:
                return bits + within
    return None


@contextmanager
def _kernel_types() -> Iterator[int]:
    btf = check_pointer(libbpf().btf__load_vmlinux_btf(), "read the kernel's type format")
    try:
        yield btf
    finally:
        libbpf().btf__free(btf)


def _members(btf: int, number: int, words: int) -> list[tuple[int, ...]]:
    kind = libbpf().btf__type_by_id(btf, number)
    count = ctypes.c_uint32.from_address(kind + 4).value & _COUNT_MASK
    values = (ctypes.c_uint32 * (words * count)).from_address(kind + _TYPE_BYTES)
    return list(zip(*(values[k::words] for k in range(words)), strict=True))


def _kind(btf: int, number: int) -> int:
    return int(ctypes.c_uint32.from_address(libbpf().btf__type_by_id(btf, number) + 4).value >> 24 & 0x1F)


def _name(btf: int, at: int) -> str:
    return str(libbpf().btf__name_by_offset(btf, at).decode())
