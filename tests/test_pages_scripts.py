"""Every kind of page: node runs its script on stubs (`test_pages_browser` opens it in a browser)."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.claims.framework.claim import Check, Claim, ClaimKind, ClaimOutcome, Config
from experiments.claims.framework.panels import Panel, draw
from experiments.claims.framework.values import Value, Values, file_of, write
from experiments.claims.pages import PICTURE, write_index
from experiments.claims.registry import CLAIMS
from experiments.results import accounting
from experiments.results.report import write as write_report
from experiments.results.report.page import page as report
from experiments.results.run_context import FidelityRecord
from experiments.results.runs.index import write_index as write_runs
from tests import run_story

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")
KINDS = ("report", "invalid", "claims", "runs")
STUBS = """
const ids = new Set(IDS);
const part = { classList: { toggle() {}, add() {}, remove() {} }, addEventListener() {}, style: {}, dataset: {} };
const addEventListener = () => {};
const document = { addEventListener() {}, getElementById: (id) => (ids.has(id) ? part : null),
                   querySelector: () => null, querySelectorAll: () => [] };
"""


def page(kind: str, folder: Path) -> Path:
    facts, context = run_story.facts(), run_story.context()
    file = folder / f"{kind}.html"
    match kind:
        case "report" | "invalid":
            if kind == "invalid":
                busy = FidelityRecord(False, ("processors: 1.0, allowed 0.5",))
                context = replace(context, fidelity=busy)
            file.write_text(report(accounting.summarise(facts, context), facts, context))
        case "runs":
            summary = accounting.summarise(facts, context)
            for name in ("one", "other"):
                write_report(folder / name, summary, facts, context)
            (folder / "torn").mkdir()
            (folder / "torn/summary.json").touch()
            return write_runs(folder)
        case _:
            rows = (Value("group", "measured", "cost", "s", 1.5, 1.0, 2.0, 3, exact=1.4, published=1.6),)
            check = Check(ClaimKind.VALUE, "cost <as printed>", ClaimOutcome.FAILS, "1.5; wanted 1.6")
            texts = ("A-none", "Paper A, Fig. 0", "A title", "It costs 1.6 s.", "Much.", ("cost",))
            claim = Claim(*texts, lambda _: Values(rows), (Panel("cost", "Cost"),), lambda _: (check,))
            CLAIMS[claim.name] = claim
            write(replace(claim.run(Config(folder)), seeds=(1, 2, 3)), path := file_of(folder, claim.name))
            draw(Values(rows), claim.title, claim.panels, path.with_suffix(PICTURE))
            try:
                write_index(folder).rename(file)
            finally:
                del CLAIMS[claim.name]
    return file


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(NODE is None, reason="no node on this machine to run a page's script with")
def test_the_script_of_a_page_finds_what_it_looks_for(kind: str, tmp_path: Path) -> None:
    text = page(kind, tmp_path).read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    program = STUBS.replace("IDS", json.dumps(ids)) + "\n".join(scripts)
    done = subprocess.run([str(NODE), "-e", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
