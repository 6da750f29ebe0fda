"""Runs of a sweep: every policy with every seed, every named variant and every combination of values.

A run is named by the inputs of its result: the scenario in its long form with its seed and its policy, the records of
owners, and the user's own code. `tasks` keeps results of different versions of the project's own code apart.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from bpf.caches import fingerprint
from controller.core.policies.overrides import parse_overrides, with_overrides
from controller.user_policies import files_of, find_policy, source_of
from experiments.inputs.scenario import Scenario, dumps, load
from experiments.inputs.scenario.files import EXAMPLES, scenario_of
from experiments.inputs.scenario.scenario import MAX_SEED
from experiments.inputs.seeds import seeds_of
from experiments.results.summary import NUMBERS
from topologies import files, plugins, reading, toml
from topologies.errors import SpecError
from topologies.keys import Kind, flag, texts
from topologies.keys import text as one_text
from topologies.tables import Table

MAX_RUNS = 1_000_000
FEWEST_SEEDS = range(1, 7)  # if none are named: fewer have no interval
OTHERWISE = {
    "seed": "seeds",
    "protocol.policy": "policies",
}  # keys of a scenario that are swept by options of their own
FIGURES = (
    "lost_time.total_s",
    "lost_time.expected_emergencies_s",
    "lost_time.over_online_bound",
    "lost_time.over_online_bound_unforced",
    "lost_time.online_bound_covers",
    "interruptions.lost_gpu_s",
    "jobs.finished",
    "migrations.downtime_median_s",
    "delay.mean_s",
    "cost.mean",
    "checkpoints.bytes_sent",
    "research.lowest_share",
)  # that are compared and drawn, if no others are named
NUMERIC = frozenset(name for name in NUMBERS if "." in name)
_CHANGES = 'such as { "slow" = { "protocol.max_load" = 0.5 } } or { duration = "1 d" }'
_SWEPT = 'a table such as { "protocol.checkpoint_share" = [0.1, 0.2] }: quoted keys, lists of values'
FILE_KEYS = {
    "scenario": one_text("a scenario file"),
    "policies": texts("a list of texts"),
    "figures": texts("a list of texts"),
    "seeds": Kind(Any, 'a text such as "1:21", or a list'),
    "trace": texts("a file, or a list of files", single=True),
    "until_over": flag(),
    "set": Kind(dict[str, tuple[Any, ...]], _SWEPT),
    "with": Kind(dict[str, Any], _CHANGES),
    "variants": Kind(dict[str, dict[str, Any]], _CHANGES),
}
VARIANT = "variant"  # head of the column with the names of variants


@dataclass(frozen=True, slots=True)
class SweepCase:
    """A run of a sweep. `scenario` has its policy, seed and values; `text` is each value as it was given."""

    policy: str
    seed: int
    values: tuple[tuple[str, str], ...]
    scenario: Scenario

    @property
    def label(self) -> str:
        """Policy and values, for people."""
        return ", ".join([self.policy, *(f"{key} {value}" for key, value in self.values)])


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep.

    Construction checks everything, before anything is played; SpecError names the fault.

    `policies`: the first is the one that others are compared with. `values`: key of the scenario file -> its values, as
    TOML has them. `variants`: name -> keys that change together. `records`: as of `simulate`. `figures`: of a
    `Summary`, by section.name.
    """

    scenario: Scenario
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    records: tuple[str, ...] = ()
    until_over: bool = False
    figures: tuple[str, ...] = FIGURES
    folder: Path = Path()  # where paths of campus files begin

    def __post_init__(self) -> None:
        if strange := [policy for policy in self.policies if not isinstance(policy, str)]:
            allowed = 'names, or "module:NAME" of your own: other processes have to find them'
            raise SpecError("policies", f"{strange[0]}"[:80], allowed)
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
                raise SpecError("seeds", seed, f"whole numbers from 0 to {MAX_SEED}")
        for key, some in (("policies", self.policies), ("seeds", self.seeds), ("figures", self.figures)):
            if not some or len(set(some)) < len(some):
                raise SpecError(key, list(some)[:20], "at least one, each once")
        for policy in self.policies:
            find_policy(policy, "policies")
        for key in OTHERWISE:
            for given in (self.values, *self.variants.values()):
                if key in given:
                    raise SpecError(f"set.{key}", f"{given[key]}"[:80], f"not here: {OTHERWISE[key]} has it")
        for key, some in self.values.items():
            if not some:
                raise SpecError(f"set.{key}", [], "at least one value")
        for figure in self.figures:
            if figure not in NUMERIC:
                near = [name for name in sorted(NUMERIC) if name.endswith(f".{figure.rpartition('.')[2]}")]
                raise SpecError("figures", figure, f"figures of summary.json, such as {', '.join(near[:6] or FIGURES)}")
        if (count := len(self)) > MAX_RUNS:
            raise SpecError("runs", count, f"at most {MAX_RUNS}")
        _ = self._varied

    def __len__(self) -> int:
        count = len(self.policies) * len(self.seeds) * max(1, len(self.variants))
        for some in self.values.values():
            count *= len(some)
        return count

    @property
    def keys(self) -> tuple[str, ...]:
        """The heads of the columns that distinguish runs of one policy and seed."""
        return ((VARIANT,) if self.variants else ()) + tuple(self.values)

    @cached_property
    def _varied(self) -> list[tuple[tuple[tuple[str, str], ...], Scenario]]:
        """Each combination of values, as text, and the scenario with it."""
        base = tomllib.loads(dumps(self.scenario))
        found = []
        for (name, changes), *chosen in product(
            self.variants.items() or [("", {})],
            *([(key, value) for value in some] for key, some in self.values.items()),
        ):
            text = [(VARIANT, name)] if name else []
            text += [(key, value if isinstance(value, str) else _text(value)) for key, value in chosen]
            every = (*changes.items(), *chosen)
            found.append((tuple(text), _with(base, every, self.folder) if every else self.scenario))
        if len({text for text, _ in found}) < len(found):
            raise SpecError("set", "a value twice", "each value of a key once")
        return found

    def cases(self) -> Iterator[SweepCase]:
        """Yield every run: values, then policies, then seeds."""
        for text, scenario in self._varied:
            for policy in self.policies:
                protocol = replace(scenario.protocol, policy=policy)
                for seed in self.seeds:
                    yield SweepCase(policy, seed, text, replace(scenario, protocol=protocol, seed=seed))

    def key_of(self, case: SweepCase) -> str:
        """Return a run's key, with all inputs of its result except the project's code."""
        words = (dumps(case.scenario), str(self.until_over), source_of(case.policy), self.of_records)
        return f"{case.label}, seed {case.seed}: {fingerprint((), *words)}"

    @cached_property
    def of_records(self) -> str:
        """A fingerprint of the records; of a user's function, of its code. SpecError: one is not there."""
        return fingerprint_of(self.records)

    @property
    def places(self) -> tuple[str, ...]:
        """The records, for a process that was started in another folder."""
        return tuple(str(Path(record).absolute()) if Path(record).exists() else record for record in self.records)

    @property
    def modules(self) -> dict[str, Path]:
        """Files of the user's own modules that the runs need, by relative name, but for installed packages."""
        some = [*map(files_of, self.policies), *(plugins.sources(each, plugins.TRACES) for each in self.records)]
        found = {name: path for files in some for name, path in files.items()}
        return {name: path for name, path in found.items() if not {"site-packages", "dist-packages"} & set(path.parts)}


def fingerprint_of(records: Sequence[str]) -> str:
    """Return the fingerprint of records' bytes, and of a user's function's code.

    SpecError: one is not there.
    """
    if not records:
        return ""
    paths: list[Path] = []
    for record in records:
        path = Path(record)
        if path.is_file():
            paths.append(path)
        elif plugins.is_plugin(record, plugins.TRACES):
            plugins.find("trace", record, plugins.TRACES, "a function that makes a Trace of a Scenario")
            paths += plugins.sources(record, plugins.TRACES).values()
        else:
            raise SpecError("trace", record, "a file that is there, or module:NAME")
    # by what they hold, not by where they lie: elsewhere they may lie at another path
    return fingerprint(paths, *(record for record in records if not Path(record).exists()))


def read_plan(what: Scenario | str | Path, overrides: Sequence[str] = (), **given: Any) -> SweepPlan:
    """Return the plan of a scenario (or its file, or `example:NAME`), or of a sweep file, which names one and sets other fields.

    `given` (policies, seeds, values, records, until_over, figures) overrides the file; None or empty: nothing is given.
    `overrides` (FIELD=VALUE) apply to each policy.
    """
    scenario, folder, chosen = (what, Path(), {}) if isinstance(what, Scenario) else _read(what)
    given = {key: value for key, value in given.items() if value}
    usual = {"policies": (scenario.protocol.policy,), "seeds": tuple(FEWEST_SEEDS)}
    plan = usual | chosen | given
    if overrides:
        changes = parse_overrides(overrides)
        plan["policies"] = tuple(with_overrides(policy, changes) for policy in plan["policies"])
    try:
        return SweepPlan(scenario, folder=folder, **plan)
    except SpecError as error:
        raise error.within(str(what)) if error.key in chosen and error.key not in given else error from None


def _read(what: str | Path) -> tuple[Scenario, Path, dict[str, Any]]:
    """Return the scenario that a file is or names, the folder where its paths begin, and the fields that a sweep file sets."""
    if not isinstance(what, str | Path) or not (path := files.find(what, EXAMPLES)).is_file():
        return load(what), Path(), {}  # it raises
    try:
        table = toml.parse(reading.read_text(path, "a scenario or sweep file (TOML)"))
        if not isinstance(table.get("scenario"), str):
            return load(what), path.parent, {}
        chosen = _fields(Table(table), path.parent)
    except SpecError as error:
        raise error if error.source else error.within(str(path)) from None
    named = chosen.pop("scenario")
    named = named if named.startswith(files.EXAMPLE) else str(path.parent / named)
    scenario, folder = load(named), files.find(named, EXAMPLES).parent
    if every := chosen.pop("with", None):
        scenario = _with(tomllib.loads(dumps(scenario)), every.items(), folder)
    return scenario, folder, chosen


def _fields(table: Table, folder: Path) -> dict[str, Any]:
    """Return the keys of a sweep file, as fields of `SweepPlan` beside `scenario` and `with`."""
    read = {key: kind.read(table, key) for key, kind in FILE_KEYS.items() if table.has(key)}
    table.done()
    if (seeds := read.pop("seeds", None)) is not None:
        read["seeds"] = tuple(seeds) if isinstance(seeds, list) else seeds_of(str(seeds))
    read["values"] = read.pop("set", {})
    if records := read.pop("trace", ()):
        read["records"] = tuple(str(folder / each) if (folder / each).exists() else each for each in records)
    return read


def value_of_key(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return (key, values) of `KEY=A,B`: values as TOML has them, else as text. SpecError: it has no such form."""
    key, equals, words = text.partition("=")
    if not (equals and key.strip() and words.strip()):
        raise SpecError("--set", text[:80], "KEY=A,B, such as protocol.checkpoint_share=0.1,0.2")
    try:
        return key.strip(), tuple(tomllib.loads(f"x = [{words}]")["x"])
    except (ValueError, RecursionError):  # no TOML, or too long or deep for any
        return key.strip(), tuple(_toml_or_text(word.strip()) for word in words.split(","))


def with_settings(scenario: Scenario, settings: Sequence[str], folder: Path) -> Scenario:
    """Return the scenario with each KEY=VALUE in the place of its own; paths of campus files begin in `folder`. SpecError."""
    chosen = [(key.strip(), _toml_or_text(word.strip())) for key, _, word in (each.partition("=") for each in settings)]
    return _with(tomllib.loads(dumps(scenario)), chosen, folder)


def _toml_or_text(word: str) -> Any:
    try:
        return tomllib.loads(f"x = {word}")["x"]
    except (ValueError, RecursionError):  # no TOML, or too long or deep for any
        return word


def _with(base: Mapping[str, Any], chosen: Iterable[tuple[str, Any]], folder: Path) -> Scenario:
    """Return the scenario of a table whose keys have these values. SpecError names the key."""
    table = dict(base)
    for key, value in chosen:
        place, (*sections, name) = table, key.split(".")
        for section in sections:
            inner = place.get(section, {})
            if not isinstance(inner, dict):
                raise SpecError(f"set.{key}", value, f"a key of a table, and {section} is none")
            place[section] = place = dict(inner)
        place[name] = value
    try:
        return scenario_of(table, folder)
    except SpecError as error:
        said = ", ".join(f"{key} = {value}" for key, value in chosen)
        raise error.within(f"the scenario with {said}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
