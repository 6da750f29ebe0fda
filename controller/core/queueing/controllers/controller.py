"""Controllers of the queue: the rule by which jobs join and leave. This one keeps its rule; those that learn extend it."""

from __future__ import annotations

from dataclasses import replace

from controller.core.queueing.replay import Rule


class Controller:
    """Admission by a rule. r = 0: all jobs go to on-demand; infinity: all wait."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    @property
    def level(self) -> float:
        """Level r = N + p, in jobs."""
        return self.rule.level

    def hold(self, level: float) -> None:
        """Decide at this level from now on."""
        self.rule = replace(self.rule, level=level)

    def arrived(self, now_s: float) -> None:
        """Note that a job was submitted, and the answer to it was given."""

    def spot(self, now_s: float) -> None:
        """Note that an offer was made, taken or not."""

    def lost(self, made_s: float) -> None:
        """Note that the offer made at `made_s` served no new job: it was withdrawn, or taken by an interrupted job."""

    def left(self, delay_s: float) -> None:
        """Note that a job was dispatched for the first time, or went to on-demand (delay 0 if at once)."""

    def work(self) -> bool:
        """Do one slice, O(window) at most, of the work between decisions; return whether there was anything to do."""
        return False
