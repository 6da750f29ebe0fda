"""The fidelity verdict: what makes a run invalid, and rates of real links against what they declare."""

from collections.abc import Iterator

import pytest

from testbed.emulation import fidelity
from testbed.emulation.campus import LiveCampus
from testbed.emulation.fidelity import Bounds, CpuTimes, FidelityMonitor, LinkRate, judge, judged
from tests.emulation_campuses import kernel, small_campus
from topologies.units import MBIT_PER_S

LOOSE = Bounds(busy_windows=2.0, steal_share=2.0, lag_p99_s=100.0)


def test_full_processors_make_a_run_invalid_and_figures_at_the_bounds_do_not() -> None:
    bounds = Bounds()
    figures = {"cpu_busy_windows": 0.9, "cpu_steal_mean": 0.0, "lag_p99_s": 0.001}
    (reason,) = judge(judged(figures, [], {}, bounds))
    assert "busy" in reason and "0.9" in reason
    figures = {"cpu_busy_windows": bounds.busy_windows, "lag_p99_s": bounds.lag_p99_s}
    assert judge(judged(figures, [], {}, bounds)) == []


@pytest.mark.parametrize(("measured", "reasons"), [(0.85, 1), (0.95, 0), (1.0, 0), (1.03, 1)])
def test_rate_outside_the_bounds_is_named(measured: float, reasons: int) -> None:
    found = judge(judged({}, [LinkRate("h1", "h2", 100.0, 100.0 * measured)], {}, Bounds()))
    assert len(found) == reasons and all("h1 to h2" in line for line in found)


def test_processor_shares_count_stolen_time_as_busy() -> None:
    before = CpuTimes.parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n")
    after = CpuTimes.parse("cpu  140 0 60 840 50 0 0 10 0 0\n")
    assert after.shares_since(before) == (0.6, 0.1)


@pytest.fixture(scope="module")
def slow() -> Iterator[LiveCampus]:
    with LiveCampus(small_campus(2, rate_bytes_per_s=100 * MBIT_PER_S), enforcement=False) as net:
        yield net


class TestLive:
    """On a real campus."""

    pytestmark = kernel

    def test_no_path_carries_more_than_it_declares(self, slow: LiveCampus) -> None:
        for rate in fidelity.probe_link_rates(slow, [("h1", "h2"), ("c0", "h1")]):
            assert 0.1 < rate.ratio <= 1.02, rate

    def test_changed_shaper_makes_the_run_invalid(self, slow: LiveCampus) -> None:
        with FidelityMonitor(slow, LOOSE) as monitor:
            assert monitor.verdict().valid
            slow.get("h1").cmd("tc class change dev h1-eth0 parent 1: classid 1:1 htb rate 900mbit")
        verdict = monitor.verdict()
        assert not verdict.valid and "h1-eth0" in verdict.reasons[0]
