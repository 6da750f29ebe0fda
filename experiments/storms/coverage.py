"""Which cases a storm really reached: a storm that never exercises a thing proves nothing about it.

A case of a core is what happened to it and the state that it met: a message to the coordinator with the phase of the job that it
is about, an event of an agent with the phase of its job there. A fact is a case with its cause.
"""

from __future__ import annotations

import re
from typing import Any

from controller.core.model import events as cev
from controller.core.model.cluster import Cluster
from controller.core.model.facts import Fact
from testbed import messages as m
from testbed.agent.core import events as aev
from testbed.agent.core.agent import AgentCore

NAMES = re.compile(r"\b[a-z]+[0-9]+\b")  # of hosts, as storms' campuses have them
DULL = (m.Heartbeat, m.HeartbeatAck, m.Grant)


def coordinator_case(world: Cluster, event: cev.Event) -> str:
    """What the coordinator hears, and what it believes of whom that concerns; "" for what is always the same."""
    match event:
        case cev.AgentSaid(_, m.Heartbeat()) | cev.Woke():
            return ""
        case cev.AgentSaid(host, message):
            return f"coordinator: {_message(message)}{_about(world, host, message)}"
        case cev.JobSubmitted():
            return "coordinator: JobSubmitted" + (", again" if event.job.name in world.jobs else "")
        case cev.CancelAsked(job):
            phase = world.jobs[job].phase if job in world.jobs else "unknown"
            return f"coordinator: CancelAsked, job {phase}"
        case cev.AgentGone(host):
            busy = "with jobs" if world.hosts[host].jobs else "idle"
            return f"coordinator: AgentGone, {busy}"
    return f"coordinator: {type(event).__name__}"


def _about(world: Cluster, host: str, message: Any) -> str:
    name = getattr(message, "job", None) or getattr(getattr(message, "checkpoint", None), "job", None)
    if name is None:
        state = world.hosts[host]
        return ", known" if state.incarnation >= 0 else ", first"
    job = world.jobs.get(name)
    if job is None:
        return ", job unknown"
    stale = getattr(message, "attempt", job.attempt) != job.attempt
    return f", job {job.phase}" + (", an earlier attempt" if stale else "")


def agent_case(core: AgentCore, event: aev.Event) -> str:
    """What an agent meets, and the phase of the job there; "" for what is always the same."""
    if isinstance(event, aev.Woke | aev.WorkloadsProgressed | aev.Sampled):
        return ""
    thing: Any = event.message if isinstance(event, aev.Received) else event
    if isinstance(thing, DULL):
        return ""
    name = getattr(thing, "job", None) or getattr(getattr(thing, "checkpoint", None), "job", None)
    name = getattr(name, "name", name)
    case = f"agent: {_message(thing)}"
    if name is None:
        return case + (", busy" if core.running else ", idle")
    if (running := core.running.get(name)) is None:
        return f"{case}, job not here"
    is_other = getattr(thing, "attempt", running.attempt) != running.attempt
    return f"{case}, job {running.phase}" + (", another attempt" if is_other else "")


def fact_case(fact: Fact) -> str:
    """A fact, with its cause if it has one."""
    words = getattr(fact, "reason", "") or ""
    reason = NAMES.sub("...", str(words).partition(":")[0].partition(";")[0])[:64]  # its fixed part
    return ", ".join(filter(None, [f"fact: {type(fact).__name__}", getattr(fact, "cause", None), reason]))


def _message(message: Any) -> str:
    """The message's name, with what distinguishes its branches."""
    name = type(message).__name__
    match message:
        case m.JobEnded():
            return f"{name} {message.outcome}"
        case m.Hello():
            told = [("jobs", message.jobs), ("ended", message.ended), ("stored", message.stored)]
            return "".join([name, *(f" +{what}" for what, things in told if things)])
        case m.OwnerReclaims():
            return f"{name} {'with notice' if message.notice_s > 0.0 else 'now'}"
        case m.SnapshotTaken() | aev.SnapshotDone() | aev.SnapshotFailed():
            return f"{name} final" if message.final else name
        case m.TransferEnded():
            return f"{name} {'well' if message.ok else 'badly'}"
        case aev.SendEnded():
            badly = "badly, may be retried" if message.retryable else "badly"
            return f"{name} {'well' if message.account.ok else badly}"
        case aev.WorkloadEnded():
            return f"{name} {'finished' if message.ended.outcome == 'finished' else 'failed'}"
        case aev.SwitchRead():
            return f"{name} {'lent' if message.lent else 'noticed' if message.isolate_in_s else 'closed'}"
        case m.StartJob():
            return f"{name} {'from a checkpoint' if message.restore else 'from nothing'}"
    return name
