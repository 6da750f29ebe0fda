"""Exit statuses: each error ends a command with the status that the table gives it, alone or out of nurseries."""

import errno
import os
import pty
import re
import signal
import subprocess
import time
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import typer

from experiments.runtime import exit_status
from experiments.runtime.exit_status import ExitStatus
from testbed.emulation.safety.interruption import signals_held
from testbed.errors import InvariantBroken, LocalProtocolError, SetupError
from testbed.linux import enter_network_of
from tests.live_campus import CLI, command
from tests.patience import wait_until
from topologies.errors import SpecError

ROOT = Path(__file__).parents[1]
STATUSES = [
    (SpecError("key", 1, "2"), ExitStatus.NOT_RUN),
    (SetupError("no root"), ExitStatus.NOT_RUN),
    (OSError(errno.ENOSPC, "No space left on device"), ExitStatus.NOT_RUN),
    (MemoryError(), ExitStatus.NOT_RUN),
    (typer.BadParameter("wrong"), ExitStatus.NOT_RUN),
    (SystemExit("a reason"), ExitStatus.NOT_RUN),
    (SystemExit(3), ExitStatus.CUT_SHORT),
    (KeyboardInterrupt(), ExitStatus.INTERRUPTED),
    (typer.Abort(), ExitStatus.INTERRUPTED),
    (InvariantBroken("job1", "one copy"), ExitStatus.BROKEN),
    (LocalProtocolError("a bug"), ExitStatus.INTERNAL),
    (OSError(errno.ENOENT, "No such file or directory"), ExitStatus.INTERNAL),
    (KeyError("x"), ExitStatus.INTERNAL),
    (ModuleNotFoundError("No module named 'mininet'", name="mininet"), ExitStatus.NOT_RUN),
    (ModuleNotFoundError("No module named 'polars'", name="polars"), ExitStatus.NOT_RUN),
    (ModuleNotFoundError("No module named 'bpf.x'", name="bpf.x"), ExitStatus.INTERNAL),
]


def ended(error: BaseException) -> int:
    def command() -> None:
        raise error

    return exit_status.run(command)


@pytest.fixture(autouse=True)
def handlers_put_back() -> object:
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a terminal has it, under nohup too
    yield None
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(("error", "status"), STATUSES, ids=lambda each: repr(each)[:40])
def test_an_error_has_the_same_status_alone_and_out_of_nested_nurseries(
    error: BaseException, status: ExitStatus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == status
    alone = capsys.readouterr().err
    assert ended(BaseExceptionGroup("nursery", [BaseExceptionGroup("nursery", [error])])) == status
    assert ("Traceback" in alone) == (status is ExitStatus.INTERNAL)


def test_of_several_errors_the_gravest_is_the_status() -> None:
    both = BaseExceptionGroup("nursery", [SpecError("a", 1, "b"), KeyError("bug"), KeyboardInterrupt()])
    assert ended(both) == ExitStatus.INTERNAL


def test_signals_end_a_command_that_a_script_began_in_the_background() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGINT):
        assert exit_status.run(lambda signum=signum: trio.run(sent_in_trio, signum)) == ExitStatus.INTERRUPTED


async def sent_in_trio(signum: signal.Signals) -> None:
    signal.raise_signal(signum)
    await trio.sleep(5.0)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_a_command_with_130_in_a_trio_run_and_outside_and_mininets_prompt_cannot_catch_them(
    signum: signal.Signals,
) -> None:
    def told_outside() -> None:
        try:
            signal.raise_signal(signum)
        except KeyboardInterrupt:
            assert signum is signal.SIGINT

    assert exit_status.run(lambda: trio.run(sent_in_trio, signum)) == ExitStatus.INTERRUPTED
    assert exit_status.run(told_outside) == (0 if signum is signal.SIGINT else ExitStatus.INTERRUPTED)


def test_a_signal_that_is_ignored_stays_so_while_others_are_held() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_held():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_what_fails_since_it_was_interrupted_is_no_fault_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("half done")  # as a compiler says

    assert exit_status.run(interrupted) == ExitStatus.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_command_that_works_says_that_it_was_ended(tmp_path: Path) -> None:
    runs = tmp_path / "swept/runs.jsonl"
    words = ["sweep", "example:lab", "--seeds", "1:60", "--workers", "2", "--out", str(runs.parent)]
    argv = [*CLI, *words]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        wait_until(lambda: child.poll() is not None or (runs.exists() and runs.stat().st_size > 0))
        child.send_signal(signal.SIGTERM)
        told = child.stderr.read()
    assert (child.returncode, told) == (ExitStatus.INTERRUPTED, "reclaimnet: interrupted\n")


@pytest.mark.parametrize(
    ("words", "began"),
    [
        (["simulate", "long.toml"], b"virtual time"),
        (["simulate", "long.toml"], b"compiling once"),
        (["simulate", "long.toml", "--policy", "oracle"], b"virtual time"),
        (["sweep", "long.toml", "--seeds", "30", "--workers", "2"], b"2 processes"),
        (["storm", "--seeds", "0:100000"], b"storms"),
        (["measure", "queue"], b""),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else each.decode(),
)
def test_an_interrupt_that_is_typed_ends_a_command_soon_and_leaves_nothing(
    tmp_path: Path, words: list[str], began: bytes
) -> None:
    (tmp_path / "long.toml").write_text('name = "long"\nduration = "200 d"\ncampus = "example:lab"\n')
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)} if b"compiling" in began else {}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(CLI[0], [*CLI, *words], {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **cache})
    shown = b""
    while began not in shown or not shown:
        shown += os.read(terminal, 65536)
    time.sleep(0.5)
    os.write(terminal, b"\x03")
    with suppress(OSError):  # the last process has closed it
        while os.read(terminal, 65536):
            pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == ExitStatus.INTERRUPTED
    wait_until(lambda: subprocess.run(["pgrep", "--session", str(pid)], check=False, capture_output=True).returncode)


def test_a_full_disk_and_a_closed_pipe_are_no_broken_promise() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = command("doctor", stdout=full.fileno())
    assert (done.returncode, "No space left" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    reading, writing = os.pipe()
    os.close(reading)
    done = command("doctor", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_namespace_whose_holder_was_killed_is_the_machines_fault() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(SetupError, match=f"process {gone.pid}, which held .* was ended from outside"):
        enter_network_of(gone.pid)


def test_wrong_usage_is_status_2_and_names_the_option() -> None:
    done = command("simulate", "example:lab", "--seed", "x")
    assert done.returncode == 2
    assert "--seed" in done.stderr


def test_a_missing_library_is_a_line_with_the_command_that_installs_it(capsys: pytest.CaptureFixture[str]) -> None:
    described = ConfigParser()
    described.read(Path(__file__).parents[1] / "setup.cfg")
    named = {re.split(r"[<>=\[]", line)[0].lower() for line in str(described["options.extras_require"]["live"]).split()}
    assert named >= {"os-ken", "cryptography", "pyjwt"}
    for module, extra in (("os_ken.base", "live"), ("polars", "analysis"), ("starlette.routing", "web")):
        assert ended(ModuleNotFoundError(f"No module named {module!r}", name=module)) == ExitStatus.NOT_RUN
        expected = f"reclaimnet: {module} is needed: pip install 'reclaimnet-testbed[{extra}]'\n"
        assert capsys.readouterr().err == expected
