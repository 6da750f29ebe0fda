"""Metrics for Prometheus: the head of the run. Labels take a fixed set of values, whatever the size of the campus."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from topologies.spec import TrafficClass

STATES = ("busy", "idle", "noticed", "reclaimed", "lost", "absent")
PHASES = ("waiting", "starting", "running", "moving", "interrupted")


def registry(feed: Feed, health: Health, streams: Mapping[str, int]) -> CollectorRegistry:
    """Return all metrics; `streams`: open and stalled ones of the page itself."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Run(feed, health, streams))
    return made


class _Run(Collector):
    def __init__(self, feed: Feed, health: Health, streams: Mapping[str, int]) -> None:
        self._feed, self._health, self._streams = feed, health, streams

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, now."""
        head, health = self._feed.head, self._health
        totals = head.totals
        yield InfoMetricFamily(
            "reclaimnet_campus",
            "The campus that is shown.",
            value={"campus": head.campus.name, "world": self._feed.source.world},
        )
        states = Count(
            ("busy" if row["jobs"] else "idle") if row["state"] == "lent" else row["state"]
            for _, row in head.hosts.live()
        )
        yield _gauges("reclaimnet_hosts", "Hosts with an agent.", "state", {s: states[s] for s in STATES})
        gpus = {"total": 0, "used": 0}
        for _, row in head.hosts.live():
            gpus["total"] += row["gpus"]
            gpus["used"] += len(row["jobs"])
        yield _gauges("reclaimnet_gpus", "GPUs of the campus, and those that a job has.", "state", gpus)
        phases = Count(row["phase"] for _, row in head.jobs.live())
        yield _gauges("reclaimnet_jobs", "Jobs that are not over.", "phase", {p: phases[p] for p in PHASES})
        yield _counters(
            "reclaimnet_jobs", "Jobs since the run began, by what became of them.", "event", totals.jobs
        )
        queue = head.queue_row()
        yield _gauge("reclaimnet_queue_jobs", "Jobs that wait for a GPU.", queue["length"])
        yield _gauge(
            "reclaimnet_queue_level", "Level r = N + p of the spot queue, jobs.", queue["level"] or 0.0
        )
        yield _gauge(
            "reclaimnet_queue_mean_delay_seconds",
            "Mean delay until the first dispatch.",
            queue["mean_delay_s"],
        )
        yield _gauge(
            "reclaimnet_queue_mean_cost",
            "Mean cost of a job: 1 on a volunteer, k on demand.",
            queue["mean_cost"],
        )
        yield _counters("reclaimnet_reclaims", "Hosts taken back by their owners.", "kind", totals.reclaims)
        yield _counters("reclaimnet_migrations", "Planned migrations.", "outcome", totals.migrations)
        yield _counters("reclaimnet_checkpoints", "Checkpoints.", "state", totals.checkpoints)
        yield _counters("reclaimnet_transfers", "Transfers of checkpoints.", "outcome", totals.transfers)
        yield _counters(
            "reclaimnet_transfer_bytes",
            "Payload of transfers, sent and found there already.",
            "kind",
            totals.bytes,
        )
        yield _gauge(
            "reclaimnet_work_lost_seconds",
            "Work computed again, less what was taken up after all.",
            totals.work_lost_s,
        )
        yield _counter(
            "reclaimnet_dropped_packets", "Packets dropped by hosts' buckets.", totals.dropped_packets
        )
        yield _counter("reclaimnet_agents_lost", "Connections to agents that were lost.", totals.agents_lost)
        yield _counter(
            "reclaimnet_coordinator_restarts", "Times that the coordinator began again.", totals.restarts
        )
        granted = dict.fromkeys((each.value for each in TrafficClass), 0.0)
        used = granted.copy()
        for _, row in head.flows.live():
            granted[row["class"]] = granted.get(row["class"], 0.0) + row["grant"]
            used[row["class"]] = used.get(row["class"], 0.0) + (row["use"] or 0.0)
        yield _gauges(
            "reclaimnet_granted_bytes_per_second", "Payload rate granted to flows.", "traffic_class", granted
        )
        yield _gauges(
            "reclaimnet_used_bytes_per_second", "Payload rate that flows get.", "traffic_class", used
        )
        links = {"down": 0, "slower": 0}
        for key, row in head.links.live():
            described = head.campus.links[int(key) // 2].rate_bytes_per_s
            links["down"] += row["rate"] <= 0.0
            links["slower"] += 0.0 < row["rate"] < described
        yield _gauges(
            "reclaimnet_impaired_links", "Directions of cables that work below their rate.", "state", links
        )
        yield _gauge("reclaimnet_journal_facts", "Facts read from the journal.", head.number)
        yield _gauge(
            "reclaimnet_journal_age_seconds", "Time since the last fact.", self._feed.now_s - head.at_s
        )
        if health.watched:
            yield _gauge(
                "reclaimnet_coordinator_up", "Whether the coordinator answers.", float(health.answers)
            )
            yield _gauge(
                "reclaimnet_coordinator_answer_seconds", "How long its last answer took.", health.took_s
            )
        yield _gauge("reclaimnet_dashboard_streams", "Open streams of the page.", self._streams["open"])
        yield _counter(
            "reclaimnet_dashboard_stalled_streams",
            "Streams closed whose reader had stopped.",
            self._streams["stalled"],
        )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _counters(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
