"""Research that has sizes, and research that does not yield: as described, in the fluid model, in both worlds, in the figures."""

import math
import socket
import threading
import time
from dataclasses import replace
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from experiments.inputs.scenario import ResearchFlow, Scenario, dumps, loads
from experiments.inputs.scenario.flow_sizes import PACKET_BYTES, SIZES, mean_bytes, quantile
from experiments.inputs.traces import generate
from experiments.inputs.traces.generated import flow_arrivals
from experiments.results.accounting import summarise
from experiments.results.report.tables import tiles
from experiments.results.run_context import FlowCompletion, research_shares
from experiments.worlds.live.research import Measured, plan_flows, samples
from experiments.worlds.virtual import VirtualRun, simulate
from testbed.model.network import FluidNetwork, Sharing
from tests.emulation_campuses import needs_root
from tests.etcd_members import free_ports
from tests.live_campus import live, running
from tests.run_story import star
from topologies.errors import SpecError
from topologies.scale import Scale
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import MBIT_PER_S, PAYLOAD_SHARE

LINK = DirectedLink("a", "b")
T = TrafficClass
TEXT = f"""
name = "traffic"
duration = "10 min"
[owners]
hazard = "0 /h"
[jobs]
count = 0
[[research]]
source = "h1"
target = "h3"
rate = "30 Mbit/s"
sizes = "web-search"
mean_size = "200 kB"
[[research]]
source = "h2"
target = "h3"
rate = "50 Mbit/s"
transport = "udp"
{star("h1", "h2", "h3", rate="100 Mbit/s")}"""
GREEDY = '[[research]]\nsource = "h1"\ntarget = "h3"\n[campus]'


def played(text: str = TEXT) -> VirtualRun:
    scenario = loads(text)
    return simulate(scenario, generate(scenario))


def test_distributions_are_the_published_ones() -> None:
    """Their means are known from programs of others that use them: 1138 and 5117 packets."""
    assert mean_bytes("web-search") / PACKET_BYTES == pytest.approx(1138, rel=0.005)
    assert mean_bytes("data-mining") / PACKET_BYTES == pytest.approx(5117, rel=0.001)
    for name, points in SIZES.items():
        assert all(a[0] <= b[0] and a[1] < b[1] for a, b in pairwise(points))
        for size, share in points[1:-1]:
            assert quantile(name, share) * mean_bytes(name) == pytest.approx(size * PACKET_BYTES)
        assert quantile(name, 0.0) * mean_bytes(name) == pytest.approx(points[0][0] * PACKET_BYTES)
    assert quantile("web-search", 0.85) * mean_bytes("web-search") == pytest.approx((1333 + 3333) / 2.0 * PACKET_BYTES)


def test_arrivals_are_poisson_and_carry_the_rate_and_a_seed_repeats_them() -> None:
    flow = ResearchFlow("h1", "h3", 1e6, sizes="web-search", mean_size_bytes=1e5)
    found = list(islice(flow_arrivals(flow, 0, 1), 20_000))
    span_s = found[-1][0]
    assert len(found) / span_s == pytest.approx(10.0, rel=0.03)
    assert sum(size for _, size in found) / span_s == pytest.approx(1e6, rel=0.05)
    seconds = [0] * int(span_s)
    for at_s, _ in takewhile(lambda each: each[0] < int(span_s), found):
        seconds[int(at_s)] += 1
    mean = sum(seconds) / len(seconds)
    assert sum((n - mean) ** 2 for n in seconds) / len(seconds) == pytest.approx(mean, rel=0.1)
    assert found[:9] == list(islice(flow_arrivals(flow, 0, 1), 9)) != list(islice(flow_arrivals(flow, 1, 1), 9))
    small = Scale(bytes=1 / 10, time=1 / 5)
    scaled = list(islice(flow_arrivals(small.apply(flow), 0, 1), 9))
    assert [at_s for at_s, _ in scaled] == pytest.approx([at_s / 5 for at_s, _ in found[:9]])
    assert [size for _, size in scaled] == pytest.approx([size / 10 for _, size in found[:9]], abs=1)


def test_traffic_is_written_read_and_checked() -> None:
    read = loads(TEXT)
    assert loads(dumps(read)) == read
    default = loads(TEXT.replace('mean_size = "200 kB"', "")).research[0]
    assert default.mean_size_bytes == pytest.approx(1.67e6, rel=0.01)
    for key, old, new in (
        ("h1-h3.rate", 'rate = "30 Mbit/s"\n', ""),
        ("h2-h3.rate", 'rate = "50 Mbit/s"\n', ""),
        ("research #1.sizes.*data-mining", "web-search", "datamining"),
        ("h1-h3.transport", "sizes =", 'transport = "udp"\nsizes ='),
        ("h1-h3.mean_size", 'sizes = "web-search"\n', ""),
        ("research.rate.*2000000", "200 kB", "1 B"),
    ):
        with pytest.raises(SpecError, match=key):
            loads(TEXT.replace(old, new, 1))


@pytest.mark.parametrize("sharing", Sharing)
def test_datagrams_take_what_they_send_and_lose_what_does_not_fit(sharing: Sharing) -> None:
    network = FluidNetwork({LINK: 100.0}, sharing)
    network.start("tcp", [LINK], T.RESEARCH, math.inf, math.inf, 0.0)
    network.start("udp", [LINK], T.RESEARCH, math.inf, 60.0, 0.0, yields=False)
    assert [network.flow(key).rate_bytes_per_s for key in ("tcp", "udp")] == [40.0, 60.0]
    network.start("more", [LINK], T.RESEARCH, math.inf, 140.0, 0.0, yields=False)
    assert [network.flow(key).rate_bytes_per_s for key in ("tcp", "udp", "more")] == pytest.approx([0.0, 30.0, 70.0])
    network.start("move", [LINK], T.PLANNED, math.inf, 20.0, 0.0)
    left = 80.0 if sharing is Sharing.PRIORITY else 100.0
    rates = [network.flow(key).rate_bytes_per_s for key in ("udp", "more")]
    assert rates == pytest.approx([0.3 * left, 0.7 * left])
    network.stop("more", 1.0)
    network.stop("udp", 1.0)
    assert network.flow("tcp").rate_bytes_per_s == pytest.approx(80.0)


def test_checkpoints_leave_datagrams_the_reserve_and_no_more() -> None:
    network = FluidNetwork({LINK: 100.0}, reserve=lambda capacity: 0.3 * capacity)
    network.start("copy", [LINK], T.PRESYNC, math.inf, math.inf, 0.0)
    assert network.flow("copy").rate_bytes_per_s == 100.0
    network.start("udp", [LINK], T.RESEARCH, math.inf, 20.0, 0.0, yields=False)
    assert [network.flow(key).rate_bytes_per_s for key in ("copy", "udp")] == pytest.approx([80.0, 20.0])
    network.start("more", [LINK], T.RESEARCH, math.inf, 60.0, 0.0, yields=False)
    rates = [network.flow(key).rate_bytes_per_s for key in ("copy", "udp", "more")]
    assert rates == pytest.approx([70.0, 7.5, 22.5])


def test_flows_with_sizes_are_played_and_told() -> None:
    run = played()
    flows = run.context.completions
    expected = list(takewhile(lambda each: each[0] < 599.0, flow_arrivals(loads(TEXT).research[0], 0, 1)))
    assert len(flows) == pytest.approx(len(expected), abs=20)
    assert {each.size_bytes for each in flows} <= {size for _, size in flow_arrivals_until(700.0)}
    assert all(each.took_s is not None for each in flows)
    alone = (100.0 - 50.0 / PAYLOAD_SHARE) * MBIT_PER_S * PAYLOAD_SHARE
    fastest = max(each.size_bytes / (each.took_s or math.inf) for each in flows)
    assert fastest == pytest.approx(alone, rel=0.01)  # datagrams have their rate first
    figures = run.summary().research
    assert (figures.flows, figures.flows_cut) == (len(flows), 0)
    assert figures.samples == 0
    took = sorted(each.took_s or 0.0 for each in flows)
    assert figures.completion_median_s == pytest.approx(took[len(took) // 2], rel=0.05)
    labels = [tile.label for tile in tiles(run.summary())]
    assert "median of research flows" in labels
    assert played().context.completions == flows


def flow_arrivals_until(end_s: float) -> list[tuple[float, int]]:
    return list(takewhile(lambda each: each[0] < end_s, flow_arrivals(loads(TEXT).research[0], 0, 1)))


def test_a_flow_of_a_host_that_its_owner_takes_is_cut_and_later_ones_go_on() -> None:
    script = 'script = [{ at = "100 s", host = "h1" }, { at = "200 s", host = "h1", kind = "return" }]'
    run = played(TEXT.replace("[owners]", f"[owners]\n{script}"))
    cut = [each for each in run.context.completions if each.took_s is None]
    done = [each for each in run.context.completions if each.took_s is not None]
    begin_s = 0.5
    away = [size for at_s, size in flow_arrivals_until(300.0) if 100.0 <= at_s < 200.0]
    assert len(away) <= len(cut) <= len(away) + 5
    assert all(100.0 + begin_s <= each.at_s <= 200.0 + begin_s for each in cut)
    assert any(each.at_s > 200.0 for each in done)
    assert run.summary().research.flows_cut == len(cut)


def test_a_greedy_flow_beside_datagrams_is_judged_with_them() -> None:
    """The reserve is for all research: what datagrams take of a greedy flow, or lose on a full link, breaks no promise."""
    text = TEXT.replace('"50 Mbit/s"', '"60 Mbit/s"').replace("[campus]", GREEDY, 1)
    run = played(text)
    assert min(s.wire_bytes_per_s for s in run.context.research if s.link_capacity_bytes_per_s) < 0.3 * 12.5e6
    shares = [each.share for each in research_shares(run.context)]
    assert min(shares) == pytest.approx(1.0, abs=0.02)
    assert not run.summary().invariants_broken


def test_figures_count_flows_that_are_over() -> None:
    run = played(TEXT.replace('rate = "30 Mbit/s"', 'rate = "1 kbit/s"'))
    flows = [FlowCompletion(1.0, 9_000, took_s) for took_s in (0.1, 0.3, 5.0, None)]
    figures = summarise(run.facts, replace(run.context, completions=flows)).research
    assert (figures.flows, figures.flows_cut, figures.completion_median_s) == (4, 1, 0.3)
    assert figures.completion_p99_s == pytest.approx(5.0, rel=0.05)


def loopback(tmp_path: Path, flow: ResearchFlow) -> Measured:
    """A flow over the machine's loopback, its receiver and sender running."""
    [port] = free_ports(1)
    found = Measured(flow, port, "127.0.0.1", tmp_path / "research-0.bin", "127.0.0.1", 0, 3)
    for target in (found.receive, found.send):
        threading.Thread(target=target, daemon=True).start()
        time.sleep(0.3)
    return found


@pytest.mark.alone
def test_datagrams_are_sent_at_their_rate(tmp_path: Path) -> None:
    flow = loopback(tmp_path, ResearchFlow("h1", "h3", 2e6, "udp"))
    time.sleep(4.5)
    rates = [taken for _, taken in flow.windows()]
    assert len(rates) >= 3
    assert sum(rates[1:]) / (len(rates) - 1) == pytest.approx(2e6, rel=0.1)


@pytest.mark.alone
def test_flows_with_sizes_are_sent_whole_and_timed(tmp_path: Path) -> None:
    flow = loopback(tmp_path, ResearchFlow("h1", "h3", 1e6, sizes="web-search", mean_size_bytes=5e4))
    time.sleep(4.5)
    done = list(flow.completed(0.0, math.inf))
    due = [size for at_s, size in islice(flow_arrivals(flow.flow, 0, 3), 500) if at_s < 4.0]
    assert len(done) >= 0.8 * len(due)
    sizes = [size for _, size in islice(flow_arrivals(flow.flow, 0, 3), len(done) + 20)]
    assert {each.size_bytes for each in done} <= {*sizes}
    assert all(each.took_s is not None and each.took_s > 0.0 for each in done)
    assert sum(taken for _, taken in flow.windows()) == pytest.approx(sum(each.size_bytes for each in done), rel=0.4)


@pytest.mark.alone
@needs_root
def test_what_arrives_behind_a_lost_segment_counts_though_it_cannot_be_read_yet(tmp_path: Path) -> None:
    [port] = free_ports(1)
    flow = Measured(ResearchFlow("h1", "h3"), port, "127.0.0.1", tmp_path / "research-0.bin", "127.0.0.1")
    threading.Thread(target=flow.receive, daemon=True).start()
    time.sleep(0.3)
    with skipped(socket.create_connection((flow.address, flow.port)), 100) as sender:
        sender.send(bytes(50_000))
        time.sleep(1.5)
        assert next(flow.windows())[1] >= 50_000


def skipped(sock: socket.socket, lost: int) -> socket.socket:
    """Return another socket of a TCP connection, for which so many bytes are sent that will never arrive (TCP_REPAIR)."""

    def tcp(of: socket.socket, option: int, value: int) -> None:
        of.setsockopt(socket.IPPROTO_TCP, option, value)

    repair, repair_queue, queue_seq, receive, send = 19, 20, 21, 1, 2
    here, there, numbers = sock.getsockname(), sock.getpeername(), {receive: 0, send: lost}
    tcp(sock, repair, 1)
    window = sock.getsockopt(socket.IPPROTO_TCP, repair_window := 29, 20)
    for of in numbers:
        tcp(sock, repair_queue, of)
        numbers[of] += sock.getsockopt(socket.IPPROTO_TCP, queue_seq)
    sock.close()
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp(other, repair, 1)
    for of, number in numbers.items():
        tcp(other, repair_queue, of)
        tcp(other, queue_seq, (number + 2**31) % 2**32 - 2**31)
    other.bind(here)
    other.connect(there)
    other.setsockopt(socket.IPPROTO_TCP, repair_window, window)
    tcp(other, repair, -1)
    return other


def test_windows_of_others_count_only_beside_a_greedy_flow(tmp_path: Path) -> None:
    scenario: Scenario = loads(TEXT.replace("[campus]", GREEDY, 1))
    flows = plan_flows(scenario.campus, scenario.research, tmp_path, 1)
    for flow in flows:
        flow.record.write_bytes(b"".join(pack(end_s) for end_s in range(10, 30)))
    found = samples(scenario.campus, flows, 0.0, 100.0)
    judged = {(s.source, s.target) for s in found if s.link_capacity_bytes_per_s > 0.0}
    assert judged == {("h1", "h3")}
    assert {(s.source, s.target) for s in found} == {("h1", "h3"), ("h2", "h3")}


def pack(end_s: float) -> bytes:
    from experiments.worlds.live.research import _RECORD

    return _RECORD.pack(end_s, 1_000_000)


@pytest.mark.parametrize("duration", [pytest.param("12 s", marks=live)])
def test_a_live_campus_carries_flows_with_sizes_beside_datagrams(duration: str, tmp_path: Path) -> None:
    (tmp_path / "traffic.toml").write_text(TEXT.replace("10 min", duration).replace("[campus]", GREEDY, 1))
    with running(tmp_path / "out", "run", str(tmp_path / "traffic.toml")) as run:
        run.finish()
        research = run.summary()["research"]
    due = [size for at_s, size in flow_arrivals_until(9.0)]
    assert 0.8 * len(due) <= research["flows"] - research["flows_cut"]
    assert 0.0 < research["completion_median_s"] < 5.0
    assert research["lowest_share"] > 0.8  # of all research on its link
    assert not run.summary()["invariants_broken"]
