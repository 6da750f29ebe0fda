"""Files of results are there as a whole or not at all, and what a disk refuses is said with the file's name."""

import os
import resource
from functools import partial
from pathlib import Path

import pytest

from tests.live_campus import command
from topologies.writing import naming, whole, write_whole

EVENING = Path(__file__).parents[1] / "docs/examples/evening.toml"


def test_a_file_that_cannot_be_written_is_as_it_was_before(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_whole(page, "before \N{SNOWMAN}")
    with pytest.raises(ZeroDivisionError), whole(page) as scratch:
        scratch.write_text("half")
        raise ZeroDivisionError
    assert page.read_text(encoding="utf-8") == "before \N{SNOWMAN}"
    write_whole(page, b"after")
    assert page.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["page.html"]  # noqa: PTH208


def test_a_full_disk_is_named_and_a_name_that_is_there_stays(tmp_path: Path) -> None:
    full = tmp_path / "out"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"No space left on device: '{full}'"):
        write_whole(full, "page")
    assert full.is_symlink()
    with pytest.raises(OSError, match="No such file or directory: 'another'"), naming(full):
        Path("another").read_text()


def test_a_command_names_the_file_that_it_could_not_write_and_leaves_no_half_of_it(tmp_path: Path) -> None:
    """It said `No space left on device`, not where, and half a report lay there."""
    out, most_bytes = tmp_path / "out", 20_000
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    done = command("simulate", str(EVENING), "--out", str(out), preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    name = done.stderr.rpartition("File too large: ")[2].strip().strip("'")
    assert Path(name).parent == out, done.stderr
    assert not Path(name).exists()
    assert all(path.stat().st_size < most_bytes for path in out.iterdir())
