"""Mutants played against storms: which of them the storms notice, and by which promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

from experiments.runtime.workers import workers
from experiments.storms.generate import generate
from experiments.storms.mutants import ALL, BY_NAME, planted
from experiments.storms.play import StormFailure, play
from topologies.errors import SpecError


@dataclass(frozen=True, slots=True)
class Tried:
    """A mutant, the first storm that noticed it and what it said; None: no storm did."""

    mutant: str
    seed: int | None = None
    failure: StormFailure | None = None


def named(text: str) -> list[str]:
    """The mutants of a list of names with commas, or `all`. SpecError: there is none of that name."""
    names = [mutant.name for mutant in ALL] if text == "all" else [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in BY_NAME]:
        raise SpecError("--mutants", ", ".join(unknown), f"all, or some of {', '.join(BY_NAME)}")
    return names


def unmutated(names: Sequence[str], seeds: range) -> StormFailure | None:
    """The first failure of the program as it is, in the storms of these mutants: where there is one, none can be judged."""
    kinds = dict.fromkeys(BY_NAME[name].trunks for name in names)
    storms = (generate(seed, trunks=trunks) for trunks in kinds for seed in seeds)
    return next((failure for storm in storms if (failure := play(storm).failure) is not None), None)


def attempt(name: str, seeds: range) -> Tried:
    """Plant one, and play until a storm notices. AssertionError: the mutant itself fails, which is no finding."""
    mutant = BY_NAME[name]
    with planted(mutant):
        for seed in seeds:
            if (failure := play(generate(seed, trunks=mutant.trunks)).failure) is not None:
                if "in mutants.py" in failure.rule:
                    raise AssertionError(
                        f"the mutant {name} does not fit the program any more: {failure.rule}"
                    )
                return Tried(name, seed, failure)
    return Tried(name)


def attempt_all(
    names: Sequence[str], seeds: range, *, count: int, heard: Callable[[Tried], None] = lambda _: None
) -> list[Tried]:
    """All of them in so many processes, in the order of `names`; `heard` is told of each as it is known."""
    tried: dict[str, Tried] = {}
    with workers(count, prefer_native=False) as pool:
        for future in as_completed([pool.submit(attempt, name, seeds) for name in names]):
            found = future.result()
            tried[found.mutant] = found
            heard(found)
    return [tried[name] for name in names]
