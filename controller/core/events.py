"""What can happen to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages import FromAgent, JobSpec


@dataclass(frozen=True, slots=True)
class AgentSaid:
    """A message from the agent of `host` (the first on a connection is Hello)."""

    host: str
    message: FromAgent


@dataclass(frozen=True, slots=True)
class AgentGone:
    """The connection to the agent of `host` is closed; its jobs may still run until their lease lapses."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """Somebody submits a job. `draw` in [0, 1) decides if the queue admits with probability p."""

    job: JobSpec
    draw: float
    operator: int = 0  # who gets the answer


@dataclass(frozen=True, slots=True)
class Woke:
    """Nothing but time has passed: `next_deadline_s()` is due."""


Event = AgentSaid | AgentGone | JobSubmitted | Woke
