"""A wheel holds what the program needs, whether its tree was built or is a fresh clone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("bpf", "controller", "experiments", "testbed", "topologies")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def test_a_wheel_of_a_built_tree_holds_the_sources_and_nothing_that_was_compiled(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"no working tree of git: {listed.stderr.strip()}")
    tree = tmp_path / "tree"
    files = [name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    for name in filter(lambda name: (ROOT / name).is_file(), files):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    for built in ("bpf/objects/egress.0123.bpf.o", "controller/numerics/__pycache__/compiled/jit.nbi"):
        (tree / built).parent.mkdir(parents=True)
        (tree / built).touch()
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=tree, capture_output=True, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if ".dist-info/" not in name}
    needed = {name for name in files if name.startswith(PACKAGES) and not name.endswith(".md")}
    assert inside == {name for name in needed if (ROOT / name).is_file()}
