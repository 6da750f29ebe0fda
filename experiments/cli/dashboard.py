"""The live page that `--web` puts beside a campus."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from testbed.errors import SetupError
from testbed.own_programs import own_program

START_S = 20.0  # imports, on a machine that builds a campus at the same time


@contextmanager
def page_beside(console: Console, campus_id: str, port: int | None) -> Iterator[None]:
    """Provide the page of a campus in a process of its own, for as long as this lasts; nothing, if no port is named.

    SetupError: it could not be served (the port is taken, for example).
    """
    if port is None:
        yield
        return
    asked = ["--campus", campus_id, "--port", str(port), "--until-eof"]
    argv = [*own_program("experiments.cli"), "dashboard", *asked]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        said = process.stdout.readline().strip() if ready else f"it did not answer within {START_S:g} s"
        if "http://" not in said:
            raise SetupError(f"the page could not be served: {said.removeprefix('reclaimnet: ')}")
        console.print(f"live page: {said.partition(': ')[2]}", soft_wrap=True)
        yield
    finally:
        process.stdin.close()  # its end
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
