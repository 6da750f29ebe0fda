"""`index.html` of a folder of results: every run in it with its first figures, and what else lies there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import quote

from experiments.results.pages import render
from experiments.results.report import tables
from experiments.results.runs.folders import PAGES, ResultFolder, result_folders
from topologies.writing import write_whole

INDEX = "index.html"
MADE_HERE = '<meta name="generator" content="reclaimnet results">'
HEAD_BYTES = 1000  # in which the mark stands


def is_index(path: Path) -> bool:
    """Return True if there is an index that this program wrote (a page of claims has the same name)."""
    try:
        with path.open("rb") as file:
            return MADE_HERE.encode() in file.read(HEAD_BYTES)
    except OSError:
        return False


def write_index(folder: Path, found: list[ResultFolder] | None = None) -> Path:
    """Write `folder`/index.html; return its path. It is there whole or as it was before."""
    some = result_folders(folder) if found is None else found
    runs = [(each, each.summary) for each in some if each.summary]
    tiles = [{tile.label: tile.value for tile in tables.tiles(summary)} for _, summary in runs]
    labels = dict.fromkeys(label for each in tiles for label in each)
    page = render(
        Path(__file__).with_name("runs.html"),
        title=f"Results in {folder.resolve().name}",
        generator=MADE_HERE,
        runs=[(each, *tables.verdict(summary), shown) for (each, summary), shown in zip(runs, tiles, strict=True)],
        labels=[label for label in labels if any(each.get(label, "-") != "-" for each in tiles)],
        choices={what: sorted({getattr(summary, what) for _, summary in runs}) for what in ("scenario", "policy")},
        others=[each for each in some if not each.summary],
        kinds=PAGES,
        quote=partial(quote, errors="surrogateescape"),
        origin=None,
    )
    path = folder / INDEX
    write_whole(path, page)
    return path


def update_index(out: Path) -> None:
    """Update the index of the folder that `out` lies in: of the directory `out` here, or where `results` made one."""
    folder = out.resolve().parent
    if folder == Path.cwd() / "out" or is_index(folder / INDEX):
        existing = folder / INDEX
        if not existing.exists() or is_index(existing):
            write_index(folder)
