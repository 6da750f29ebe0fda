"""libbpf.so.1 through ctypes: the few functions used, with their prototypes, and one way to turn a negative return into an error.

Calls release the GIL; a call costs about 1 us plus the system call.
"""

from __future__ import annotations

import ctypes
import errno

from bpf.errors import BpfError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INT, U32, U64, TEXT, POINTER = (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p)

_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "libbpf_set_print": (POINTER, [POINTER]),
    "bpf_object__open_mem": (POINTER, [POINTER, ctypes.c_size_t, POINTER]),
    "bpf_object__load": (INT, [POINTER]),
    "bpf_object__close": (None, [POINTER]),
    "bpf_object__find_map_fd_by_name": (INT, [POINTER, TEXT]),
    "bpf_object__find_map_by_name": (POINTER, [POINTER, TEXT]),
    "bpf_map__set_max_entries": (INT, [POINTER, U32]),
    "bpf_map__reuse_fd": (INT, [POINTER, INT]),
    "bpf_prog_attach": (INT, [INT, INT, INT, U32]),
    "bpf_object__find_program_by_name": (POINTER, [POINTER, TEXT]),
    "bpf_program__fd": (INT, [POINTER]),
    "bpf_map_update_elem": (INT, [INT, POINTER, POINTER, U64]),
    "bpf_map_lookup_elem": (INT, [INT, POINTER, POINTER]),
    "bpf_map_delete_elem": (INT, [INT, POINTER]),
    "bpf_map_get_next_key": (INT, [INT, POINTER, POINTER]),
    "bpf_obj_pin": (INT, [INT, TEXT]),
    "bpf_obj_get": (INT, [TEXT]),
    "bpf_prog_get_fd_by_id": (INT, [U32]),
    "bpf_raw_tracepoint_open": (INT, [TEXT, INT]),
    "bpf_prog_test_run_opts": (INT, [INT, POINTER]),
    "btf__parse_elf": (POINTER, [TEXT, POINTER]),
    "btf__load_vmlinux_btf": (POINTER, []),
    "btf__free": (None, [POINTER]),
    "btf__find_by_name_kind": (ctypes.c_int32, [POINTER, TEXT, U32]),
    "btf__type_by_id": (POINTER, [POINTER, U32]),
    "btf__resolve_size": (ctypes.c_int64, [POINTER, U32]),
    "btf__name_by_offset": (TEXT, [POINTER, U32]),
}


_loaded: list[ctypes.CDLL] = []


def libbpf() -> ctypes.CDLL:
    """Return the library, with prototypes set and its own printing off. BpfError if it is not installed."""
    if _loaded:
        return _loaded[0]
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise BpfError(
            f"libbpf.so.1 cannot be loaded ({error}); mend it with: apt install libbpf1", errno.ENOENT
        ) from error
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(None)
    _loaded.append(library)
    return library


def check(status: int, what: str, log: str = "") -> int:
    """Return `status`, unless it is libbpf's negative error number."""
    if status < 0:
        raise BpfError(what, -status, log)
    return status


def check_pointer(pointer: int | None, what: str) -> int:
    """Return `pointer`; if it is null, raise libbpf's reason from errno."""
    if not pointer:
        raise BpfError(what, ctypes.get_errno())
    return pointer
