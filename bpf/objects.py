"""Opening, loading and pinning the programs: one fresh pair of programs and set of maps a host.

A program's instructions name its maps, so every host has its own copy of both, and each copy goes through the kernel's
verifier: that is nearly all of the time (`load_host_programs` docstring). The ELF files are read once a process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path

from bpf.build import built
from bpf.errors import BpfError
from bpf.library import check, check_pointer, libbpf
from bpf.maps import AggregateBucket, ClassCounters, FlowTable, HostMaps
from bpf.memory import KernelMap, open_pinned_fd
from bpf.meters import Meters
from bpf.switch import KillSwitch

BPFFS = Path("/sys/fs/bpf")
LOG_BYTES = 1 << 16
LOG_LINES = 20
# kinds of attachment to a control group (BPF_CGROUP_INET_INGRESS, _EGRESS), beside those of others (BPF_F_ALLOW_MULTI)
INGRESS, EGRESS, ALLOW_MULTI = 0, 1, 2


class _OpenOptions(ctypes.Structure):
    """`struct bpf_object_open_opts` of libbpf 1.x."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("object_name", ctypes.c_char_p),
        ("relaxed_maps", ctypes.c_bool),
        ("pin_root_path", ctypes.c_char_p),
        ("attach_prog_fd", ctypes.c_uint32),
        ("kconfig", ctypes.c_char_p),
        ("btf_custom_path", ctypes.c_char_p),
        ("kernel_log_buf", ctypes.c_void_p),
        ("kernel_log_size", ctypes.c_size_t),
        ("kernel_log_level", ctypes.c_uint32),
    ]


@dataclass(frozen=True, slots=True)
class HostPrograms(HostMaps):
    """Loaded programs and maps of a host. `close` releases only this process's references."""

    egress_fd: int
    ingress_fd: int

    def close(self) -> None:
        """Close programs and maps; what is attached or pinned stays in the kernel. Once only."""
        os.close(self.egress_fd)
        os.close(self.ingress_fd)
        HostMaps.close(self)


def load_host_programs(pin_dir: Path | None = None) -> HostPrograms:
    """Load both programs with new maps.

    Maps are pinned (flows, meters, aggregate, counters, switch) under `pin_dir`, a folder on a bpffs (`ensure_bpffs`),
    made if need be.

    Takes about 2.8 ms, of which 2.4 ms are the verifier and the JIT, .15 ms libbpf's BTF and probes, .2 ms the maps.
    BpfError: not permitted, refused by the verifier (with the tail of its log), or a pin that exists already.
    """
    with loaded("egress") as outward, loaded("ingress") as inward:
        programs = HostPrograms(
            FlowTable(map_fd(outward, "reclaim_flows"), Meters(map_fd(outward, "reclaim_meters"))),
            AggregateBucket(map_fd(outward, "reclaim_aggr")),
            ClassCounters(map_fd(outward, "reclaim_classes")),
            KillSwitch(map_fd(inward, "reclaim_switch")),
            program_fd(outward, "reclaim_egress"),
            program_fd(inward, "reclaim_ingress"),
        )
    if pin_dir is not None:
        try:
            pin_dir.mkdir(parents=True, exist_ok=True)
            programs.pin(pin_dir)
        except (BpfError, OSError):
            programs.close()
            raise
    return programs


def load_guest_programs(pin_dir: Path, group: int, coordinator: IPv4Address) -> Path:
    """Load and pin the programs of a real machine for a control group; return the pin of the one for its interface.

    Once this returns the kill-switch is in force on the sockets of the group and of those below it, and of no others. The
    coordinator passes it. A switch that is pinned there goes on as it is: an owner's word outlives the agent. BpfError as above.
    """
    kept = {"reclaim_switch": open_pinned_fd(pin_dir / "switch")} if (pin_dir / "switch").exists() else {}
    with loaded("edge") as outward, loaded("guests", reuse=kept) as inward:
        maps = HostMaps(
            FlowTable(map_fd(outward, "reclaim_flows"), Meters(map_fd(outward, "reclaim_meters"))),
            AggregateBucket(map_fd(outward, "reclaim_aggr")),
            ClassCounters(map_fd(outward, "reclaim_classes")),
            KillSwitch(map_fd(inward, "reclaim_switch")),
        )
        maps.switch.allow_coordinator(coordinator)
        guests = (ctypes.c_uint32 * 2)(0, group)  # key, value
        check(
            libbpf().bpf_map_update_elem(
                map_fd(outward, "reclaim_guests"), guests, ctypes.byref(guests, ctypes.sizeof(ctypes.c_uint32)), 0
            ),
            "name the guests",
        )
        for name, kind in (("guests_in", INGRESS), ("guests_out", EGRESS)):
            attached = libbpf().bpf_prog_attach(program_fd(inward, name), group, kind, ALLOW_MULTI)
            check(attached, f"attach {name} to a control group")
        pin_dir.mkdir(parents=True, exist_ok=True)
        for old in pin_dir.iterdir():
            if old.name != "switch":
                old.unlink()
        maps.pin(pin_dir)
        KernelMap(program_fd(outward, "reclaim_egress")).pin(pin_dir / "edge")
    return pin_dir / "edge"


def ensure_bpffs() -> Path:
    """Mount a BPF filesystem on BPFFS unless it has one; return BPFFS. BpfError if it cannot be mounted."""
    if not _is_bpffs():
        BPFFS.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", "-t", "bpf", "bpf", str(BPFFS)], capture_output=True, text=True, check=False)
        if done.returncode and not _is_bpffs():
            raise BpfError(f"mount a bpffs on {BPFFS}: {done.stderr.strip()}")
    return BPFFS


def _is_bpffs() -> bool:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return any(words[1:3] == [str(BPFFS), "bpf"] for words in mounts)


@cache
def _image(name: str) -> bytes:
    return built(name).read_bytes()


@contextmanager
def loaded(
    name: str, *, entries: Mapping[str, int] | None = None, reuse: Mapping[str, int] | None = None
) -> Iterator[int]:
    """Provide a loaded object, its maps of as many entries as `entries` gives. BpfError with the tail of the verifier's log.

    `reuse` has descriptors of maps that stand in place of its own.

    Its descriptors are closed at the end (`map_fd` and `program_fd` duplicate them).
    """
    image, log = _image(name), ctypes.create_string_buffer(LOG_BYTES)
    options = _OpenOptions(
        sz=ctypes.sizeof(_OpenOptions),
        object_name=f"reclaim_{name}".encode(),
        kernel_log_buf=ctypes.addressof(log),
        kernel_log_size=LOG_BYTES,
    )
    opened = libbpf().bpf_object__open_mem(image, len(image), ctypes.byref(options))
    pointer = check_pointer(opened, f"read {built(name)}")
    try:
        for map_name, count in (entries or {}).items():
            found = libbpf().bpf_object__find_map_by_name(pointer, map_name.encode())
            check(libbpf().bpf_map__set_max_entries(found, count), f"make the map {map_name} of {count} entries")
        for map_name, fd in (reuse or {}).items():
            found = libbpf().bpf_object__find_map_by_name(pointer, map_name.encode())
            check(libbpf().bpf_map__reuse_fd(found, fd), f"go on with the map {map_name}")
        check(libbpf().bpf_object__load(pointer), f"load the {name} program", "")
        yield pointer
    except BpfError as error:
        tail = log.value.decode(errors="replace").splitlines()[-LOG_LINES:]
        raise BpfError(error.what, error.errno, "\n".join(tail)) from None
    finally:
        libbpf().bpf_object__close(pointer)


def map_fd(pointer: int, name: str) -> int:
    """Return a descriptor of a loaded object's map, the caller's own."""
    return os.dup(check(libbpf().bpf_object__find_map_fd_by_name(pointer, name.encode()), f"find the map {name}"))


def program_fd(pointer: int, name: str) -> int:
    """Return a descriptor of a loaded object's program, the caller's own."""
    program = check_pointer(libbpf().bpf_object__find_program_by_name(pointer, name.encode()), f"find {name}")
    return os.dup(check(libbpf().bpf_program__fd(program), f"find {name}"))
