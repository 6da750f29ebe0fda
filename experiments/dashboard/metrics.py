"""Metrics for Prometheus: the head of the run. Labels take a fixed set of values, whatever the size of the campus."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from topologies.spec import TrafficClass

STATES = ("busy", "idle", "noticed", "reclaimed", "lost", "absent")
PHASES = ("waiting", "starting", "running", "moving", "interrupted")
# (name, about, label, its values)
COUNTERS = (
    (
        "jobs",
        "Jobs since the run began, by what became of them.",
        "event",
        ("submitted", "finished", "failed", "cancelled", "redirected"),
    ),
    ("reclaims", "Hosts taken back by their owners.", "kind", ("notice", "emergency")),
    ("migrations", "Planned migrations.", "outcome", ("admitted", "degraded", "in_time", "late")),
    ("checkpoints", "Checkpoints.", "state", ("taken", "completed", "refused")),
    ("transfers", "Transfers of checkpoints.", "outcome", ("ok", "failed")),
    ("transfer_bytes", "Payload of transfers, sent and found there already.", "kind", ("sent", "deduplicated")),
)


def registry(feed: Feed, health: Health) -> CollectorRegistry:
    """Return all metrics."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Run(feed, health))
    return made


class _Run(Collector):
    def __init__(self, feed: Feed, health: Health) -> None:
        self._feed, self._health = feed, health

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, now."""
        head, health = self._feed.head, self._health
        totals, queue = head.totals, head.queue_row()
        shown = {"campus": head.campus.name, "world": self._feed.source.world}
        yield InfoMetricFamily("reclaimnet_campus", "The campus that is shown.", value=shown)
        hosts = list(head.hosts.values())
        states = Count(("busy" if row["jobs"] else "idle") if row["state"] == "lent" else row["state"] for row in hosts)
        yield _gauges("hosts", "Hosts with an agent.", "state", {each: states[each] for each in STATES})
        gpus = {"total": sum(row["gpus"] for row in hosts), "used": sum(len(row["jobs"]) for row in hosts)}
        yield _gauges("gpus", "GPUs of the campus, and those that a job has.", "state", gpus)
        phases = Count(row["phase"] for row in head.jobs.values())
        yield _gauges("jobs", "Jobs that are not over.", "phase", {each: phases[each] for each in PHASES})
        for name, about, label, values in COUNTERS:
            yield _counters(name, about, label, {value: totals[name, value] for value in values})
        yield _gauge("queue_jobs", "Jobs that wait for a GPU.", queue["length"])
        yield _gauge("queue_level", "Level r = N + p of the spot queue, jobs.", queue["level"] or 0.0)
        yield _gauge("queue_mean_delay_seconds", "Mean delay until the first dispatch.", queue["mean_delay_s"])
        about = "Mean cost of a job: 1 on a volunteer, k on demand."
        yield _gauge("queue_mean_cost", about, queue["mean_cost"])
        about = "Work computed again, less what was taken up after all."
        yield _gauge("work_lost_seconds", about, totals["work", "lost_s"])
        yield _counter("dropped_packets", "Packets dropped by hosts' buckets.", totals["packets", "dropped"])
        yield _counter("agents_lost", "Connections to agents that were lost.", totals["agents", "lost"])
        yield _counter(
            "coordinator_restarts", "Times that the coordinator began again.", totals["coordinator", "restarts"]
        )
        granted = dict.fromkeys((each.value for each in TrafficClass), 0.0)
        used = granted.copy()
        for row in head.flows.values():
            granted[row["class"]] = granted.get(row["class"], 0.0) + row["grant"]
            used[row["class"]] = used.get(row["class"], 0.0) + (row["use"] or 0.0)
        yield _gauges("granted_bytes_per_second", "Payload rate granted to flows.", "traffic_class", granted)
        yield _gauges("used_bytes_per_second", "Payload rate that flows get.", "traffic_class", used)
        links = {"down": 0, "slower": 0}
        for key, row in head.links.items():
            described = head.campus.links[int(key) // 2].rate_bytes_per_s
            links["down"] += row["rate"] <= 0.0
            links["slower"] += 0.0 < row["rate"] < described
        yield _gauges("impaired_links", "Directions of cables that work below their rate.", "state", links)
        yield _gauge("journal_facts", "Facts read from the journal.", head.number)
        yield _gauge("journal_age_seconds", "Time since the last fact.", self._feed.now_s - head.at_s)
        if health.watched:
            yield _gauge("coordinator_up", "Whether the coordinator answers.", float(health.answers))
            yield _gauge("coordinator_answer_seconds", "How long its last answer took.", health.took_s)


def _one(kind: type[Metric], name: str, about: str, value: float) -> Metric:
    return kind(f"reclaimnet_{name}", about, value=value)  # type: ignore[call-arg]


def _labelled(kind: type[Any], name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family: Metric = kind(f"reclaimnet_{name}", about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)  # type: ignore[attr-defined]
    return family


_gauge, _counter = (partial(_one, kind) for kind in (GaugeMetricFamily, CounterMetricFamily))
_gauges, _counters = (partial(_labelled, kind) for kind in (GaugeMetricFamily, CounterMetricFamily))
