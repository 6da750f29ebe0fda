"""`reclaimnet measure bringup`, interrupted while the campus that another process builds for it stands."""

import signal
import time
from pathlib import Path

import pytest

from testbed.emulation.safety.ledger import PIN_ROOT
from tests.live_campus import live, running

pytestmark = live


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.long)])
def test_its_process_takes_its_campus_down_when_it_is_interrupted(tmp_path: Path, name: str) -> None:
    def pins() -> set[Path]:
        return set(PIN_ROOT.iterdir()) if PIN_ROOT.exists() else set()

    before = pins()
    with running(tmp_path, "measure", "bringup", "--hosts", "40") as run:
        run.wait_until(lambda: pins() != before)
        time.sleep(0.1)
        run.process.send_signal(signal.Signals[name])
        assert run.finish(40) == 3
        assert pins() == before
