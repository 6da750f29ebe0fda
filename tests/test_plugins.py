"""Policies, campuses, traces and workloads of a user's own: by `module:name` or an entry point, without touching the project."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from controller.core.admission.schedule import MigrationRequest
from controller.core.checkpointing.planner import CheckpointJobs
from controller.core.network.links import Network, Paths
from controller.core.parameters import Queue
from controller.core.policies.table import POLICIES
from controller.user_policies import find_policy, source_of
from experiments import api
from experiments.inputs.scenario import Scenario, demo_scenario, loads
from experiments.inputs.traces import trace_of
from experiments.worlds.virtual import simulate
from testbed.messages import JobSpec
from testbed.workloads.base import load_workload
from testbed.workloads.submission import cannot_run
from tests.demands import Demand, in_columns
from tests.live_campus import command
from topologies import files, plugins
from topologies.errors import SpecError

AFTERNOON = Path(__file__).parents[1] / "docs/examples/afternoon.toml"
MODULE = """
from controller.core.policies.table import POLICIES as OURS, Policy
from experiments.inputs.traces import Trace
from testbed.workloads.synthetic import Synthetic
from topologies.presets import three_tier
from helper_of_mine import ABOUT

quiet = Policy(ABOUT, vault=False)
POLICIES = {"with-dash": Policy("from the table")}
number = 3

def campus():
    return three_tier(4, 2, 1)

def failing(*scenario):
    return 1 / 0

def nobody(scenario):
    return Trace("nobody comes", (), ())

def strangers(scenario):
    from experiments.inputs.traces import OwnerEvent
    return Trace("of another campus", (), (OwnerEvent(1.0, "elsewhere"),))

class Mine(Synthetic):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, in which the program was started; what it brings is gone after."""
    (tmp_path / "mine_of_tests.py").write_text(MODULE)
    (tmp_path / "helper_of_mine.py").write_text('ABOUT = "quiet"\n')
    (tmp_path / "broken_of_tests.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with patch.dict(POLICIES):
        yield tmp_path
    for name in ("mine_of_tests", "helper_of_mine", "broken_of_tests", "owners_of_tests", "rules"):
        sys.modules.pop(name, None)


def scenario_with(policy: str) -> Scenario:
    scenario = demo_scenario(hosts=4, buildings=2, seconds=20.0)
    return replace(scenario, protocol=replace(scenario.protocol, policy=policy))


def test_a_scenario_names_a_policy_of_a_module_and_it_decides() -> None:
    scenario = scenario_with("mine_of_tests:quiet")
    run = simulate(scenario, trace_of(scenario, ()))
    assert run.facts
    assert find_policy("mine_of_tests:quiet").about == "quiet"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("reclaimnett", r"one of slurm-pr.*module:NAME"),
        ("no_such_module_at_all:x", r"there is no module no_such_module_at_all in /"),
        ("mine_of_tests:nothing", r"has no nothing, it has with-dash, .*quiet, .*number, campus"),
        ("mine_of_tests:number", r"that is a int, no Policy"),
        ("broken_of_tests:x", r"broken_of_tests\.py, line 2: ZeroDivisionError"),
        ("mine_of_tests:", r"one of "),
        ("a/b:c", r"one of "),
    ],
)
def test_a_wrong_policy_says_what_is_wrong_and_what_is_allowed(name: str, wrong: str) -> None:
    with pytest.raises(SpecError, match=wrong) as error:
        find_policy(name, "--system")
    assert error.value.key == "--system"
    assert ("one of slurm-pr" in error.value.allowed) is (":" not in name or name in ("mine_of_tests:", "a/b:c"))
    assert '"module:NAME" of a controller.core.policies.table.Policy' in error.value.allowed


def test_an_error_in_a_users_policy_is_theirs_and_says_the_line(folder: Path) -> None:
    (folder / "failing_of_tests.py").write_text(
        "from controller.core.policies.table import Policy\n\n\ndef choose(request, candidates, *, draw=0.0):\n"
        "    return candidates.bandwith\n\n\nPOLICIES = {'x': Policy('x', select=choose)}\n"
    )
    done = command("simulate", str(AFTERNOON), "--out", "out", "--system", "failing_of_tests:x", cwd=folder)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "failing_of_tests.py, line 5: AttributeError" in last


def test_a_scenarios_user_jobs_are_played_with_a_trace_of_a_function(folder: Path) -> None:
    (folder / "owners_of_tests.py").write_text(
        "from experiments import OwnerEvent, Trace\n\n\ndef once(scenario):\n"
        "    return Trace('once', (), (OwnerEvent(5.0, scenario.volunteers[0].name, notice_s=20.0),))\n"
    )
    own = "[[jobs]]\nsteps = 10\nstep = '1 s'\npayload = '1 kB'\n"
    (folder / "own.toml").write_text(f"name = 'own'\ncampus = 'example:lab'\nduration = '1 min'\n{own}")
    run = api.simulate("own.toml", trace="owners_of_tests:once")
    assert [run.summary.jobs.finished, run.frame("HostReclaimed")["host"].n_unique()] == [1, 1]


RULE = """
from controller.core.policies.table import Policy
def f(*given, **named):
    {body}
POLICIES = {{"mine": Policy("mine", {column}=f)}}
"""


GIVEN: dict[str, list[object]] = {
    "plan": [CheckpointJobs(["a"], *[np.ones(1)] * 4, Paths.of([()]), np.ones(1)), Network({}), np.zeros(0), 0.2],
    "select": [None, None],
    "admit": [[MigrationRequest("a", 1.0, 1.0, 0.0, ())], 0.0, {}, ()],
    "share": [in_columns([Demand("a", (), 1.0)], Network({})), None],
    "learner": [Queue()],
    "standby": [None, None],
}
WRONG = ("raise ValueError('oh')", "return None", "raise SystemExit(5)", "return [1.0]")


@pytest.mark.parametrize(("column", "body"), [(column, body) for column in GIVEN for body in WRONG])
def test_a_function_that_fails_or_answers_with_no_answer_is_the_users_and_named(
    folder: Path, column: str, body: str
) -> None:
    (folder / "rules.py").write_text(RULE.format(body=body, column=column))
    rule = getattr(find_policy("rules:mine"), column)
    with pytest.raises(SpecError, match=f"mine.{column} = ") as caught:
        rule(*GIVEN[column])
    assert ("rules.py, line 4: " in str(caught.value)) == body.startswith("raise")


NUMBERS = """
from dataclasses import replace
import numpy as np
from controller.core.checkpointing.planner import plan_one_interval
from controller.core.placement.select import DestinationChoice, NoDestination, able_to_run
from controller.core.policies.table import Policy

OURS = Policy("ours")

def select(request, candidates, *, draw=0.0):
    able = able_to_run(request, candidates)
    if isinstance(able, NoDestination):
        return replace(able, shortfall=np.float64(able.shortfall))
    row = able.rows[0]
    return DestinationChoice(np.str_(candidates.hosts[row]), {score}, able.there_s[row], {survival})

def admit(*given):
    answer = OURS.admit(*given)
    return replace(answer, admitted={{name: np.float64(rate) for name, rate in answer.admitted.items()}})

def plan(*given):
    found = plan_one_interval(*given)
    return replace(found, rates_bytes_per_s=found.rates_bytes_per_s.tolist(), intervals_s=np.float32(found.intervals_s))

POLICIES = {{"mine": Policy("mine", select=select, standby=select, admit=admit, plan=plan)}}
"""


@pytest.mark.parametrize(
    ("score", "survival", "said"),
    [
        ("'good'", "1.0", "numbers for score_s"),
        ("candidates.load", "1.0", "numbers for score_s"),
        ("np.nan", "1.0", "a score_s that is a number"),
        ("0.0", "None", "numbers for score_s"),
        ("0.0", "np.nan", "a survival from 0 to 1"),
        ("0.0", "2.0", "a survival from 0 to 1"),
    ],
)
def test_a_choice_whose_numbers_cannot_be_is_refused_with_the_rule_that_made_it(
    folder: Path, score: str, survival: str, said: str
) -> None:
    (folder / "rules.py").write_text(NUMBERS.format(score=score, survival=survival))
    scenario = scenario_with("rules:mine")
    with pytest.raises(SpecError, match=rf"mine\.(select|standby) = .* a function that answers with {said}"):
        simulate(scenario, trace_of(scenario, ()))


def test_a_module_that_ends_the_process_is_refused_like_one_that_fails(folder: Path) -> None:
    (folder / "broken_of_tests.py").write_text("import sys\nsys.exit(5)\n")
    with pytest.raises(SpecError, match="line 2: SystemExit"):
        find_policy("broken_of_tests:x")


def test_the_code_of_a_policy_is_its_module_and_what_it_imports_beside_it(folder: Path) -> None:
    find_policy("mine_of_tests:quiet")
    before = source_of("mine_of_tests:quiet")
    files = ["helper_of_mine.py", "mine_of_tests.py"]
    assert list(plugins.sources("mine_of_tests:quiet", plugins.POLICIES)) == files
    (folder / "broken_of_tests.py").write_text("unrelated\n")
    assert source_of("mine_of_tests:quiet") == before
    (folder / "helper_of_mine.py").write_text('ABOUT = "other"\n')
    assert source_of("mine_of_tests:quiet") != before
    assert source_of("reclaimnet") == ""


def test_a_campus_comes_from_a_function_of_a_module() -> None:
    assert len(files.load("mine_of_tests:campus").hosts) == 6
    scenario = loads('name = "x"\ncampus = "mine_of_tests:campus"\n')
    assert scenario.campus == files.load("mine_of_tests:campus")
    with pytest.raises(SpecError, match=r"that is a int"):
        files.load("mine_of_tests:number")
    with pytest.raises(SpecError, match="does not exist"):
        files.load("no_campus.toml")
    with pytest.raises(SpecError, match=r"mine_of_tests.py, line \d+: ZeroDivisionError"):
        files.load("mine_of_tests:failing")


def test_a_trace_comes_from_a_function_of_a_module() -> None:
    scenario = scenario_with("reclaimnet")
    assert trace_of(scenario, [Path("mine_of_tests:nobody")]).origin == "nobody comes"
    with pytest.raises(SpecError, match="it has a host elsewhere"):
        trace_of(scenario, [Path("mine_of_tests:strangers")])
    with pytest.raises(SpecError, match="that gives a int"):
        trace_of(scenario, [Path("mine_of_tests:number")])
    with pytest.raises(SpecError, match=r"mine_of_tests.py, line \d+: ZeroDivisionError"):
        trace_of(scenario, [Path("mine_of_tests:failing")])


def test_installed_packages_offer_theirs_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def offers(group: str) -> dict[str, EntryPoint]:
        names = {
            plugins.POLICIES: {"hushed": "mine_of_tests:quiet", "reclaimnet": "mine_of_tests:quiet"},
            plugins.TOPOLOGIES: {"four": "mine_of_tests:campus"},
            plugins.TRACES: {"empty": "mine_of_tests:nobody"},
            plugins.WORKLOADS: {"their-own": "mine_of_tests:Mine"},
        }
        return {name: EntryPoint(name, value, group) for name, value in names[group].items()}

    monkeypatch.setattr(plugins, "_entries", offers)
    assert find_policy("hushed").about == "quiet"
    assert find_policy("reclaimnet").about != "quiet"  # the project's own come first
    assert len(files.load("four").hosts) == 6
    assert trace_of(scenario_with("hushed"), [Path("empty")]).origin == "nobody comes"
    params = {"steps": 3, "step_s": 0.1, "payload_bytes": 5000}
    assert type(load_workload("their-own", params)).__name__ == "Mine"
    assert cannot_run(JobSpec("j", 3, 0.1, 5000, workload="their-own")) == ""
    assert "their-own" in cannot_run(JobSpec("j", 3, 0.1, 5000, workload="nobodys"))
    with pytest.raises(SpecError, match="installed packages offer hushed, reclaimnet"):
        find_policy("unheard")


def test_a_workload_that_its_module_lacks_is_answered_with_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "from testbed.workloads.synthetic import Synthetic\n"
    (tmp_path / "two_of_mine.py").write_text(f"{text}class Deep(Synthetic): ...\nclass Wide(Deep): ...\n")
    with pytest.raises(SpecError, match=r"two_of_mine has Deep, Wide$"):
        load_workload("two_of_mine:Deap", {})
