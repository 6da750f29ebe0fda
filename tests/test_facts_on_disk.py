"""Facts kept on disk are the facts: every figure, every byte of events.jsonl, and whatever part of them is asked for."""

from __future__ import annotations

import pytest

from controller.core.model import facts as f
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.results import facts_on_disk
from experiments.results.events_file import digest
from experiments.results.facts_on_disk import FactsOnDisk
from experiments.worlds.virtual.run import simulate

COUNT = 25


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_on_disk, "BLOCK", 10)


def _some() -> tuple[FactsOnDisk, list[tuple[float, f.AnyFact]]]:
    """The same facts on disk and in memory; one holds an infinite number, which JSON could not."""
    kept = FactsOnDisk()
    facts: list[tuple[float, f.AnyFact]] = [
        (n / 3.0, f.Granted(f"job{n}", "h1", "h2", "presync", float("inf") if n == 3 else n / 7.0, 0.0, ""))
        for n in range(COUNT)
    ]
    for timed in facts:
        kept.append(timed)
    return kept, facts


def test_a_run_with_its_facts_on_disk_has_the_same_summary_and_the_same_bytes() -> None:
    scenario = demo_scenario(seed=1)
    trace = generate(scenario)
    on_disk, in_memory = (simulate(scenario, trace, facts_on_disk=kept) for kept in (True, False))
    assert isinstance(on_disk.facts, FactsOnDisk)
    assert len(on_disk.facts) == len(in_memory.facts) > 10 * facts_on_disk.BLOCK
    assert list(on_disk.facts) == in_memory.facts
    assert digest(on_disk.facts) == digest(in_memory.facts)
    assert on_disk.summary() == in_memory.summary()


def test_any_fact_and_any_part_is_what_was_added() -> None:
    kept, facts = _some()
    assert [kept[n] for n in range(-COUNT, COUNT)] == facts + facts
    for part in (slice(None), slice(-1, None), slice(3, 21), slice(20, 4, -3), slice(40, 50)):
        assert kept[part] == facts[part]
    with pytest.raises(IndexError):
        kept[COUNT]


def test_two_readers_at_once_and_one_who_adds_do_not_disturb_each_other() -> None:
    kept, facts = _some()
    one, other = iter(kept), iter(kept)
    assert [next(one) for _ in range(12)] == facts[:12]
    assert [next(other) for _ in range(3)] == facts[:3]
    kept.append(facts[0])
    assert next(one) == facts[12]
    assert list(other) == [*facts[3:], facts[0]]


@pytest.mark.parametrize("count", [0, 9, 10, 20, 24, 25])
def test_the_end_can_be_cut_off_and_begun_again(count: int) -> None:
    kept, facts = _some()
    del kept[count:]
    assert list(kept) == facts[:count]
    for timed in facts[count:]:
        kept.append(timed)
    assert list(kept) == facts


def test_nothing_but_the_end_can_be_cut_off() -> None:
    kept, _ = _some()
    with pytest.raises(ValueError, match="only the end"):
        del kept[3:5]
