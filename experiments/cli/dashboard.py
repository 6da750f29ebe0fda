"""`reclaimnet dashboard`: the live page of a campus, or of a run that is over; and the page that `--web` puts beside a campus."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from testbed.emulation.safety.living import named_campuses
from testbed.errors import SetupError, SpecError

START_S = 20.0  # imports, on a machine that builds a campus at the same time
NEEDED = "the live page needs its extra: pip install 'reclaimnet-testbed[web]'"


def dashboard(
    console: Console,
    run: Path | None,
    campus_id: str | None,
    topology: str | None,
    port: int,
    *,
    until_eof: bool,
) -> None:
    """Serve the page until interrupted. `run`: an events.jsonl; None: of the campus that stands.

    SetupError: no campus stands, several do and none is named, the port is taken, or the extra `web` is not installed.
    """
    try:
        from experiments.dashboard import serve, sources
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("hypercorn", "prometheus_client", "starlette"):
            raise SetupError(NEEDED) from error
        raise
    if run is None:
        if topology is not None:
            raise SpecError(
                "--topology", topology, "nothing, without a run: a campus that stands says what it is"
            )
        found = named_campuses(campus_id)
        if len(found) > 1:
            raise SetupError(f"several campuses are running: add --campus, one of {[c.id for c in found]}")
        shown, what = serve.of_campus(found[0]), f"campus {found[0].id}"
    else:
        if campus_id is not None:
            raise SpecError("--campus", campus_id, "nothing, with a run that is over")
        shown, what = serve.Shown(sources.open_run(run, topology)), str(run)

    def tell(address: str) -> None:
        console.print(f"{what}: {address}", markup=False, soft_wrap=True)
        sys.stdout.flush()

    serve.serve(shown, port, tell, until_eof=until_eof)


@contextmanager
def page_beside(console: Console, campus_id: str, port: int | None) -> Iterator[None]:
    """Provide the page of a campus in a process of its own, for as long as this lasts; nothing, if no port is named.

    SetupError: it could not be served (the port is taken, for example).
    """
    if port is None:
        yield
        return
    argv = [
        sys.executable,
        "-m",
        "experiments.cli",
        "dashboard",
        "--campus",
        campus_id,
        "--port",
        str(port),
        "--until-eof",
    ]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        said = process.stdout.readline().strip() if ready else f"it did not answer within {START_S:g} s"
        if "http://" not in said:
            raise SetupError(f"the page could not be served: {said.removeprefix('reclaimnet: ')}")
        console.print(f"live page: {said.partition(': ')[2]}", markup=False, soft_wrap=True)
        yield
    finally:
        process.stdin.close()  # its end
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
