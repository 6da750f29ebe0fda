"""Job files: what is read is what is submitted, and those that the documentation ships compute what they say."""

from pathlib import Path

import pytest
from msgspec import structs

from experiments.cli.trial import try_job
from experiments.inputs.job_file import check_runs, load_job, of_command, of_file
from testbed.messages import JobSpec
from testbed.workloads.base import load_workload
from testbed.workloads.messages import Finished, Progress, Started
from tests.job_desk import desk, job_of, next_of
from topologies.errors import SpecError

GOOD = 'steps = 3\nstep = "2 s"\npayload = "4 MB"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_job_file_is_the_job_that_is_submitted(tmp_path: Path) -> None:
    assert load_job(written(tmp_path, GOOD)) == JobSpec("mine", 3, 2.0, 4_000_000)
    text = (
        f'name = "other"\nworkload = "mod:Class"\nmemory = "8 GB"\nmin_capability = 7.5\nloss_budget = "90 s"\n{GOOD}'
        '[params]\nrate = 0.5\ndeep = true\nkind = "x"\nlayers = 3\n'
    )
    params = {"rate": 0.5, "deep": True, "kind": "x", "layers": 3}
    wanted = JobSpec("other", 3, 2.0, 4_000_000, "mod:Class", params, 8e9, 7.5, 90.0)
    assert load_job(written(tmp_path, text)) == wanted


@pytest.mark.parametrize(
    ("module", "raised"),
    [
        ("class Class(:\n", "SyntaxError"),
        ("raise RuntimeError('no GPU')\n", "RuntimeError: no GPU"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_a_module_that_raises_is_the_users_mistake_and_not_this_programs(
    tmp_path: Path, module: str, raised: str
) -> None:
    (tmp_path / f"broken_{len(module)}.py").write_text(module)
    with pytest.raises(SpecError, match=raised):
        check_runs(load_job(written(tmp_path, f'workload = "broken_{len(module)}:Class"\n{GOOD}')), tmp_path)


def test_a_script_whose_interpreter_is_not_there_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "dos.sh"
    script.write_text("#!/bin/sh\r\n")
    script.chmod(0o755)
    with pytest.raises(SpecError, match=r"interpreter '/bin/sh\\r'"):
        check_runs(load_job(written(tmp_path, f'command = ["./dos.sh"]\n{GOOD}')), tmp_path)
    script.write_text("#! /bin/sh\t-e\n")
    check_runs(load_job(written(tmp_path, f'command = ["./dos.sh"]\n{GOOD}')), tmp_path)


def test_a_file_whose_name_no_job_may_have_says_which_key_names_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"letters, digits.*without a key `name`, a job has its file's"):
        load_job(written(tmp_path, GOOD).rename(tmp_path / "my job.toml"))


EXAMPLES = Path(__file__).parents[1] / "docs/examples"
JOBS = ("counting.toml", "adding.toml", "regression.toml")


@pytest.mark.parametrize("name", JOBS)
def test_each_job_of_the_documentation_would_be_taken(name: str) -> None:
    check_runs(load_job(EXAMPLES / name), EXAMPLES)


async def test_the_regression_ends_with_the_digest_of_its_uninterrupted_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    job: JobSpec = load_job(EXAMPLES / "regression.toml")
    steps = 6 * job.steps  # so that it does not end between two looks
    params = {**job.params, "steps": steps}
    twin = load_workload(job.workload, params)
    twin.begin()
    while twin.step_number < twin.steps_total:
        twin.step()
    restore, reached = None, 0
    async with desk(tmp_path, modules=EXAMPLES) as d:
        for number in range(3):
            process = await d.start(job_of(job.workload, params), restore)
            assert (await next_of(process, Started)).step == reached
            if number < 2:
                await next_of(process, Progress)
                restore = tmp_path / f"state{number}"
                taken = await process.snapshot(restore, stop=True)
                assert steps > taken.step > reached
                reached = taken.step
                process.kill()
        assert (await next_of(process, Finished)).digest == twin.verify()


def test_an_array_is_as_many_jobs_and_keys_of_the_command_line_are_instead_of_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, f'workload = "mod:Class"\n{GOOD}[params]\nrate = 0.5\nkind = "x"\n')
    of_two = of_file(path, ["steps=9", "step=5 ms", "params.rate=0.25", "name=ab"], 2)
    one = JobSpec("ab-1", 9, 0.005, 4_000_000, "mod:Class", {"rate": 0.25, "kind": "x"}, index=1)
    assert of_two == (str(path), (one, structs.replace(one, name="ab-2", index=2)), True)
    assert not of_file(path).is_named
    with pytest.raises(SpecError, match="KEY=VALUE"):
        of_file(path, ["steps"])
    [long] = of_file(path, [f"name={'a' * 64}"], 1).jobs
    assert long.name == "a" * 62 + "-1"


def test_a_command_is_a_job_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [job] = of_command(["./my prog.sh", "--steps", "3"], ["payload=1 kB", "environment.X=a b"]).jobs
    assert (job.name, job.steps * job.step_s, job.payload_bytes) == ("my_prog", 3600.0, 1000)
    assert job.program is not None
    assert job.program.command == [f"{tmp_path}/my prog.sh", "--steps", "3"]
    assert (job.program.working_directory, job.program.environment) == (str(tmp_path), {"X": "a b"})


FORGETS = """
from counting import Counting


class Forgets(Counting):
    drift = 0

    def step(self):
        super().step()
        self.drift += 1
        {step}

    def verify(self):
        return str((self.total, {proof})).encode()
"""


@pytest.mark.parametrize("name", JOBS)
def test_each_job_of_the_documentation_resumes_where_it_was(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    [job] = of_file(EXAMPLES / name).jobs
    steps, step, payload = try_job(job, EXAMPLES)
    assert steps == f"steps = {job.steps}"
    assert all(line.split(" = ")[0] == key for line, key in ((step, "step"), (payload, "payload")))
    assert ("goes on after step 49" in capfd.readouterr().out) == (name == "counting.toml")


@pytest.mark.parametrize(
    ("step", "proof", "why"),
    [
        ("pass", "self.drift", "digest of `verify`"),  # what `load` does not bring back shows at once
        ("self.total += self.drift", "0", "`save` loses a part of step 7"),  # or a step later
        ("import time; self.total += time.monotonic_ns()", "0", "another state each time"),
        ("raise RuntimeError('no GPU')", "0", "`step` raised RuntimeError: no GPU"),
        ("raise SystemExit(0)", "0", r"`step` raised SystemExit"),
        ("self.verify = dict", "0", "bytes: the digest of the state; this is of type dict"),
        ("import os; os.kill(os.getpid(), 9)", "0", "its process was killed"),
    ],
)
def test_a_workload_whose_state_is_not_saved_is_found_before_any_campus_has_it(
    tmp_path: Path, step: str, proof: str, why: str
) -> None:
    for name, text in (("counting.py", (EXAMPLES / "counting.py").read_text()), ("forgets.py", FORGETS)):
        (tmp_path / name).write_text(text.replace("{step}", step).replace("{proof}", proof))
    job = job_of("forgets:Forgets", {"steps": 8})
    with pytest.raises(SpecError, match=why):
        try_job(job, tmp_path)


def test_a_workload_that_writes_output_is_tried_with_a_folder_for_it(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text((EXAMPLES / "counting.py").read_text())
    writes = 'import os; open(os.environ["RECLAIMNET_OUTPUT_DIRECTORY"] + "/x", "a").close()'
    (tmp_path / "writes.py").write_text(FORGETS.replace("{step}", writes).replace("{proof}", "0"))
    job = structs.replace(job_of("writes:Forgets", {"steps": 8}), output="results")
    assert try_job(job, tmp_path)[0] == "steps = 8"


@pytest.mark.parametrize(
    ("was", "instead", "why"),
    [
        ('read -r n sum < "$state"', "true", "and it went on at step"),
        ("exit 85", "exit 3", "and not with its checkpoint_exit_code 85"),
        ("asked=yes", "exit 0", "finished"),
    ],
)
def test_a_program_that_loses_its_state_is_found_before_any_campus_has_it(
    tmp_path: Path, was: str, instead: str, why: str
) -> None:
    program = tmp_path / "adding.sh"
    program.write_text((EXAMPLES / "adding.sh").read_text().replace(was, instead))
    program.chmod(0o755)
    (tmp_path / "adding.toml").write_text((EXAMPLES / "adding.toml").read_text())
    with pytest.raises(SpecError, match=why):
        try_job(load_job(tmp_path / "adding.toml"), tmp_path)
