"""Facts about a real machine: the way to the coordinator, its GPUs, and signs of its owner."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from testbed.control_groups import own_group
from testbed.errors import SetupError

LOGIND: Final = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "IdleHint")
ANSWER_S: Final = 5.0  # for a program that asks the machine
SESSIONS: Final = Path("/run/systemd/sessions")  # is there once logind has begun


class Way(NamedTuple):
    """The interface that leads to an address, this machine's address there, and its rate as the driver reports it."""

    interface: str
    source: str
    megabits_per_s: int | None


def ask(*words: str) -> Any:
    """Return the JSON that a program prints. SetupError: it is missing, or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{words[0]}: {error}") from error
    if done.returncode:
        raise SetupError(f"{' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def way_to(address: str) -> Way:
    """Return the way to the coordinator. SetupError: there is none."""
    [found] = ask("ip", "-json", "-4", "route", "get", address)
    speed = 0
    with suppress(OSError, ValueError):  # an interface without a cable has none
        speed = int(Path("/sys/class/net", found["dev"], "speed").read_text())
    return Way(found["dev"], found["prefsrc"], speed if speed > 0 else None)


class Gpus:
    """The GPUs of this machine, by NVML. `lack`: the reason why none can be asked for; "" if they can."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._hidden = False  # NVML fails for another reason than that there is no driver
        try:
            self._nvml = import_module("pynvml")
        except ImportError:
            self.lack = "no GPU can be asked: NVML's library is missing (nvidia-ml-py, of the extra 'live')"
            return
        try:
            self._nvml.nvmlInit()
            self._handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(self._nvml.nvmlDeviceGetCount())
            ]
            self.lack = ""
        except self._nvml.NVMLError as error:
            self.lack = f"no GPU can be asked: {error}"
            none = (self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND, self._nvml.NVML_ERROR_DRIVER_NOT_LOADED)
            self._hidden = error.value not in none

    def facts(self) -> list[tuple[str, int]]:
        """Return name and bytes of memory of each."""
        nvml = self._nvml
        return [(str(nvml.nvmlDeviceGetName(one)), nvml.nvmlDeviceGetMemoryInfo(one).total) for one in self._handles]

    def foreign_processes(self) -> list[int]:
        """Return processes that compute on them and are in no group of this one. SetupError: there may be others."""
        if self._hidden:
            raise SetupError(self.lack)
        try:
            pids = [p.pid for one in self._handles for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(one)]
        except self._nvml.NVMLError as error:
            raise SetupError(f"processes on a GPU cannot be seen: {error}") from error
        mine = own_group().removesuffix("/agent")
        return [pid for pid in pids if not f"{own_group(pid)}/".startswith(f"{mine}/")]


def in_use() -> bool:
    """Return True while a session of this machine is not idle. SetupError: it has no logind."""
    return not ask("busctl", "--json=short", "get-property", *LOGIND)["data"]


def presence() -> list[str]:
    """Return the signs of the owner: processes of others on a GPU; if there are none, a session that is not idle.

    SetupError: there are none, but NVML or logind, which has begun, does not answer.
    """
    signs, hidden = list[str](), None
    try:
        signs = [f"process {pid} on a GPU" for pid in Gpus().foreign_processes()]
    except SetupError as error:
        hidden = error
    if not signs and SESSIONS.is_dir() and in_use():
        return ["a session that is not idle"]
    if hidden is not None:
        raise hidden
    return signs
