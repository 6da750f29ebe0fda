"""The kill-switch under a storm of SYNs: the real programs, the real tools, and what is written of them."""

import json
from pathlib import Path

import pytest

from experiments.benchmarks import killswitch
from experiments.benchmarks.frame import Run
from experiments.benchmarks.killswitch import AGENT, KILLED, LISTENER, MAP, OF_CAMPUS, WORDS, figures
from experiments.benchmarks.syn_storm import Trial
from testbed.emulation.safety.ledger import PIN_ROOT
from tests.live_campus import needs_root
from tests.shown import shown


def trial(**changes: float | None) -> Trial:
    """One that closed 20 us after the act, all of whose SYNs are accounted for."""
    usual = {
        "last_let_in_s": 20e-6,
        "first_refused_s": 22e-6,
        "gap_s": 4e-6,
        "call_s": 15e-6,
        "sent": 100,
        "answered": 60,
        "let_in_after_return": 0,
        "missed": 0,
        "dropped": 40,
    }
    return Trial(**usual | changes)


def test_counts_agree_only_if_the_program_dropped_what_the_storm_misses() -> None:
    assert trial().counts_agree
    assert not trial(dropped=39).counts_agree
    assert trial(dropped=None).counts_agree
    assert trial(dropped=42, observed=41, others=2).counts_agree
    assert trial(dropped=42, observed=41, others=2).observer_agrees
    assert not trial(dropped=42, others=1).counts_agree
    assert not trial(dropped=39, others=1).counts_agree
    assert not trial(observed=41).observer_agrees
    found = figures([trial(), trial(dropped=41, last_let_in_s=40e-6, let_in_after_return=2)])
    assert (found["counts_disagree"], found["let_in_after_return"], found["syns"]) == (1, 2, 200)
    assert found["last_let_in_s"]["p50"] == pytest.approx(30e-6)


@pytest.mark.kernel
@needs_root
@pytest.mark.timeout(120)
def test_every_path_closes_the_host_under_the_storm_and_raw_samples_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killswitch, "QUICK_TRIALS", 2)
    result = killswitch.measure(Run(tmp_path, quick=True))
    samples = [json.loads(line) for line in (tmp_path / killswitch.SAMPLES).read_text().splitlines()]
    measured = set(result["paths"])
    assert measured | set(result["unavailable"]) == set(WORDS)
    assert {MAP, LISTENER, *OF_CAMPUS} <= measured
    for name in measured:
        mine = [sample for sample in samples if sample["path"] == name]
        assert len(mine) == 2
        # a SYN sent once the host is closed is not answered, and one sent before is
        assert all(sample["let_in_after_return"] == sample["missed"] == 0 for sample in mine)
        assert all(sample["answered"] > 0 < sample["sent"] - sample["answered"] for sample in mine)
        # and an observer that shares nothing with the programs saw the kernel drop just those that are not
        for sample in mine:
            if result["no_observer"]:
                assert sample["observed"] is None
            else:
                assert 0 <= sample["observed"] - (sample["sent"] - sample["answered"]) <= sample["others"]
    for sample in samples:
        assert (sample["dropped"] is not None) is (sample["path"] in {MAP, *OF_CAMPUS})
        if sample["dropped"] is not None:
            assert 0 <= sample["dropped"] - (sample["sent"] - sample["answered"]) <= sample["others"]
        assert sample["others"] == 0 or sample["path"] in OF_CAMPUS
    assert result["agent_obeyed"] == {AGENT: 2, KILLED: 0}
    text = shown(killswitch.tables(result))
    assert all(words in text for words in WORDS.values())
    goals = list(killswitch.goals(result))
    assert len(goals) == 8 and all(goal.met for goal in goals[-3:-1]) and "observer" in goals[-1].what
    assert not list(PIN_ROOT.glob("killswitch-*"))
