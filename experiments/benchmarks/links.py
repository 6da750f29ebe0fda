"""Links that delay, lose and change: round trips, throughput, loss, and the time of a change.

Two hosts on one switch, the first host's cable through the delay line: a round trip crosses the delay once each way. Round trips
are ping's, a hundred a second; throughput is one greedy TCP flow's at its receiver, after slow start. Goals are for a quiet
machine. All delays and changes happen on one standing campus, which is itself a part of the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from mininet.log import setLogLevel
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_least, at_most, in_ms, quantiles, seconds_of, table_of
from experiments.benchmarks.one_trunk import round_trips
from testbed.emulation.campus import LiveCampus
from testbed.emulation.fidelity import Bounds, probe_link_rates
from testbed.emulation.kernel.delay_line.process import LineStatistics, together
from topologies.presets import three_tier
from topologies.units import GBIT_PER_S, MBIT_PER_S, PAYLOAD_SHARE, format_rate

T = TypeVar("T")
FAST = 10 * GBIT_PER_S
SLOW = 200 * MBIT_PER_S
DELAY_S = 0.005
PINGS, QUICK_PINGS = 1000, 200
PING_INTERVAL_S = 0.01
FLOW_S, QUICK_FLOW_S = 4.0, 1.5
LOSS = 0.01
CHANGES = 20
# of a quiet machine: 5 ms each way, one TCP flow at 10 ms, rate with delay over declared
GOALS = {
    "rtt_p50_s": 0.0105,
    "rtt_p99_s": 0.012,
    "throughput_bytes_per_s": GBIT_PER_S,
    "rate_off": 0.02,
    "wrong": Bounds().delay_wrong_share,
}


def measure(run: Run) -> dict[str, Any]:
    """Measure on a campus of its own."""
    setLogLevel("error")
    pings, flow_s = (QUICK_PINGS, QUICK_FLOW_S) if run.quick else (PINGS, FLOW_S)
    with LiveCampus(three_tier(2, 1, access_bytes_per_s=FAST)) as net:

        def trips() -> dict[str, float]:
            return round_trips(net, "h1", "h2", pings, PING_INTERVAL_S)

        def rate(declared_bytes_per_s: float = 0.0) -> float:
            """Return payload bytes/s of a greedy flow from h1 to h2, or its part of a declared rate."""
            (found,) = probe_link_rates(net, [("h1", "h2")], duration_s=flow_s, warm_up_s=1.0)
            return found.measured_bytes_per_s / (declared_bytes_per_s * PAYLOAD_SHARE or 1.0)

        def watched(what: Callable[[], T]) -> tuple[T, list[LineStatistics]]:
            """Return the result of a call, and what the line counted meanwhile."""
            before = net.kernel.line.statistics()
            found = what()
            after = net.kernel.line.statistics()
            return found, [after[name].since(before[name]) for name in after]

        result: dict[str, Any] = {"plain": {"rtt_s": trips(), "bytes_per_s": rate()}}
        result["cut_s"] = seconds_of(lambda: net.set_link("h1", "a1", delay=0))
        result["through_the_line"] = {"rtt_s": trips(), "bytes_per_s": rate()}
        net.set_link("h1", "a1", delay=DELAY_S)
        rtt_s, idle = watched(trips)
        flooded, flood = watched(rate)
        net.set_link("h1", "a1", rate=GBIT_PER_S)
        gigabit, busy = watched(lambda: rate(GBIT_PER_S))
        result["delayed"] = {
            "rtt_s": rtt_s,
            "bytes_per_s": flooded,
            "gigabit_over_declared": gigabit,
            "idle": _lateness(idle),
            "flooded": _lateness(flood),
            "busy": _lateness(busy),
        }
        net.set_link("h1", "a1", rate=SLOW)
        slow = rate(SLOW)
        net.set_link("h1", "a1", delay=0)
        result["delayed_and_slow"] = {"over_declared": slow, "without_delay": rate(SLOW)}
        net.set_link("h1", "a1", delay=DELAY_S)
        net.set_link("h1", "a1", rate=FAST, loss=LOSS)
        lossy, line = watched(rate)
        result["lossy"] = {"bytes_per_s": lossy, "lost_segments": sum(each.lost for each in line)}
        rates = [SLOW, FAST] * (CHANGES // 2)
        spent = [seconds_of(lambda rate=rate: net.set_link("h1", "a1", rate=rate)) for rate in rates]  # type: ignore[misc]
        result["change_s"] = quantiles(spent)
    return result


def goals(result: Result) -> Iterator[Goal]:
    """Yield round trips, throughput, rate and frames of the delayed link."""
    delayed, slow = result["delayed"], result["delayed_and_slow"]
    p50_s, p99_s = delayed["rtt_s"]["p50"], delayed["rtt_s"]["p99"]
    met = 2 * DELAY_S <= p50_s <= GOALS["rtt_p50_s"]
    both = f"{in_ms(2 * DELAY_S)} to {in_ms(GOALS['rtt_p50_s'])}"
    yield Goal("round trip of 2 x 5 ms, p50", both, in_ms(p50_s), met)
    yield at_most("round trip of 2 x 5 ms, p99", p99_s, GOALS["rtt_p99_s"], in_ms)
    rate = GOALS["throughput_bytes_per_s"]
    yield at_least("one TCP flow at 5 ms", delayed["bytes_per_s"], rate, format_rate)
    off = abs(slow["over_declared"] / slow["without_delay"] - 1.0)
    yield at_most("difference of the rate with delay", off, GOALS["rate_off"], "{:.1%}".format)
    wrong = max(delayed[when]["wrong"] for when in ("idle", "busy"))
    yield at_most("frames wrong by a tenth of the delay", wrong, GOALS["wrong"], "{:.2%}".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield the figures of the plain cable, the delay line, and the links that lose and change."""

    def trips(of: dict[str, float]) -> str:
        return ", ".join(f"{q} {of[q] * 1e3:.2f} ms" for q in ("p50", "p99", "max"))

    delayed, slow, lossy = result["delayed"], result["delayed_and_slow"], result["lossy"]
    rows = []
    for key, words in (
        ("plain", "a plain cable"),
        ("through_the_line", "the delay line, at 0 ms"),
        ("delayed", "5 ms each way"),
    ):
        rows.append((f"{words}: round trip", trips(result[key]["rtt_s"])))
        rows.append((f"{words}: one TCP flow", format_rate(result[key]["bytes_per_s"])))
    gigabit = f"{delayed['gigabit_over_declared']:.3f} of it"
    rows.append(("5 ms each way, 1 Gbit/s: payload rate over declared", gigabit))
    for when, words in (
        ("idle", "pings"),
        ("busy", "a flow at 1 Gbit/s"),
        ("flooded", "as fast as it goes (then a run is invalid)"),
    ):
        late = delayed[when]
        spread = f"p50 {late['p50_s'] * 1e6:.0f} us, p99 {late['p99_s'] * 1e6:.0f} us"
        rows.append((f"lateness of the line, {words}", f"{spread}, wrong {late['wrong']:.2%}"))
    without = f"{slow['over_declared']:.3f} of it ({slow['without_delay']:.3f} without the delay)"
    rows.append(("200 Mbit/s and 5 ms: payload rate over declared", without))
    lost = f"{format_rate(lossy['bytes_per_s'])}, {lossy['lost_segments']} segments lost"
    rows.append(("1 % loss and 5 ms: one TCP flow", lost))
    rows.append(("a plain cable is replaced by the line in", f"{result['cut_s'] * 1e3:.0f} ms"))
    rows.append(("a rate is changed and read back in", trips(result["change_s"])))
    yield table_of("Two hosts on one switch", ("", "measured"), rows)


def _lateness(line: list[LineStatistics]) -> dict[str, float]:
    lateness = together(line).lateness
    return {
        "wrong": max(one.wrong / one.seen for one in line if one.seen),
        "p50_s": lateness.quantile_s(0.50),
        "p99_s": lateness.quantile_s(0.99),
    }
