"""Health of the coordinator: a request to its operators' socket now and then, so seldom that it costs next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

import trio

from experiments.worlds.live.operator import SOCKET, connected
from testbed.errors import ProtocolError

ASK_S, MAX_S, PATIENCE_S = 2.0, 8.0, 2.0
SHARE = 200.0  # an answer that took so long is followed by so many times as long without a question, MAX_S at most


@dataclass
class Health:
    """Health of a coordinator.

    `watched`: there is one to ask; `answers`, `took_s`: of the last question. `forbidden`: this user may not ask.
    """

    watched: bool
    forbidden: bool = False
    answers: bool = False
    took_s: float = 0.0
    answered_s: float = -inf  # trio's time of the last answer

    async def watch(self, run_dir: Path) -> None:
        """Ask for ever; once, if this user may not."""
        while True:
            began_s = trio.current_time()
            try:
                with trio.fail_after(PATIENCE_S):
                    async with connected(run_dir / SOCKET) as operator:
                        await operator.status()
            except PermissionError:
                self.watched, self.forbidden = False, True
                return
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ProtocolError):
                self.answers = False
            else:
                self.answers, self.answered_s = True, trio.current_time()
                self.took_s = self.answered_s - began_s
            await trio.sleep(min(MAX_S, max(ASK_S, SHARE * self.took_s if self.answers else 0.0)))
