"""The kill-switch under a storm of SYNs: the real programs, the real tools, and what is written of them."""

import json
import os
from pathlib import Path

import pytest

from experiments.benchmarks import kill_switch
from experiments.benchmarks.kill_switch import MAP, SYSCALL, figures, killswitch_notes, killswitch_table
from experiments.benchmarks.syn_storm import Trial


def trial(**changes: float | None) -> Trial:
    """One that closed 20 us after the act, all of whose SYNs are accounted for."""
    usual = {
        "last_let_in_s": 20e-6,
        "first_refused_s": 22e-6,
        "gap_s": 4e-6,
        "call_s": 15e-6,
        "sent": 100,
        "answered": 60,
        "answered_after_act": 3,
        "let_in_after_return": 0,
        "missed": 0,
        "dropped": 40,
    }
    return Trial(**usual | changes)


def test_counts_agree_only_if_the_program_dropped_what_the_storm_misses() -> None:
    assert trial().counts_agree
    assert not trial(dropped=39).counts_agree
    assert trial(dropped=None).counts_agree
    found = figures([trial(), trial(dropped=41, last_let_in_s=40e-6, let_in_after_return=2)])
    assert (found["counts_disagree"], found["let_in_after_return"], found["syns"]) == (1, 2, 200)
    assert found["last_let_in_s"]["p50"] == pytest.approx(30e-6)


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF need root")
def test_every_path_closes_the_host_under_the_storm_and_raw_samples_say_so(tmp_path: Path) -> None:
    result = kill_switch.measure_killswitch(tmp_path, 3)
    samples = [json.loads(line) for line in (tmp_path / kill_switch.SAMPLES).read_text().splitlines()]
    measured = set(result["paths"])
    assert measured | set(result["unavailable"]) == set(kill_switch.WORDS) | {"coordinator"}
    assert {MAP, SYSCALL, kill_switch.LISTENER} <= measured
    for name in measured:
        mine = [sample for sample in samples if sample["path"] == name]
        assert len(mine) == 3
        # a SYN sent once the host is closed is not answered, and one sent before is
        assert all(sample["let_in_after_return"] == sample["missed"] == 0 for sample in mine)
        assert all(sample["answered"] > 0 < sample["sent"] - sample["answered"] for sample in mine)
    for sample in samples:
        assert (sample["dropped"] is not None) is (sample["path"] in (MAP, SYSCALL))
        if sample["dropped"] is not None:
            assert sample["dropped"] == sample["sent"] - sample["answered"]
    assert killswitch_table(result).row_count == len(kill_switch.WORDS) + 1
    assert "observer" in list(killswitch_notes(result))[-1]
    assert (tmp_path / kill_switch.PICTURE).read_bytes().startswith(b"<?xml")
    assert not list(kill_switch.PIN_ROOT.glob("killswitch-*"))
