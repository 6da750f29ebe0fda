"""The lines of a run while it runs."""

import io

from rich.console import Console

from controller.core.model import facts as f
from experiments.results import narration
from experiments.results.live_lines import lines_on


def test_each_notable_event_is_one_line() -> None:
    out = io.StringIO()
    show = lines_on(Console(file=out, width=40))
    show(1.0, f.JobQueued("a", 0, 1.0))
    show(2.0, f.HostReclaimed("h3", 4.0, False, ["job7"]))
    show(2.0, f.MigrationAdmitted("job7", 1, "h3", "h1", 4.0, 20_000_000, 5e6, 1.0, 0.9))
    show(2.0, f.Granted("job7", "h3", "h1", "planned", 7.625e6, 5e6, "a1>d1"))
    assert out.getvalue().splitlines() == [
        "    2.0 s  h3: owner reclaims in 4 s, job7 there",
        "    2.0 s  job7 moves h3 -> h1: 20 MB admitted at 40 Mbit/s on average",
    ]


def test_text_of_a_reason_is_never_read_as_markup() -> None:
    out = io.StringIO()
    lines_on(Console(file=out, width=200))(1.0, f.JobFailed("a", 1, "h1", "[/bold] [red]x"))
    assert "[/bold] [red]x" in out.getvalue()


def test_sentences_name_job_host_and_cause() -> None:
    assert (
        narration.sentence(f.JobStopped("a", 1, "h1", "deadline", 9)) == "a stopped on h1 at step 9: the notice ran out"
    )
    assert narration.sentence(f.EgressMeasured("h1", 1.0, 1, 1, 0, 1.0, 1, 1.0)) is None
