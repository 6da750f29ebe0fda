"""A wheel and an sdist hold what the program needs, and what they hold works where nothing of the tree is."""

import json
import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.doc_pages import Shell, typed, why_not_played

# what is installed anew compiles its machine code: half a minute of a processor that may have other work
pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
PACKAGES = ("bpf", "controller", "experiments", "testbed", "topologies")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"


def built(kind: str, tree: Path, out: Path) -> None:
    argv = [sys.executable, "-c", BUILD.format(kind=kind), str(out)]
    subprocess.run(argv, cwd=tree, capture_output=True, check=True)


@pytest.fixture(scope="module")
def files() -> list[str]:
    """What git knows of the project, without its tests."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"no working tree of git: {listed.stderr.strip()}")
    names = [name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    return [name for name in names if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def tree(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, as it is when it was built and used."""
    tree = tmp_path_factory.mktemp("wheel") / "tree"
    for name in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    for made in ("bpf/objects/egress.0123.bpf.o", "controller/numerics/__pycache__/compiled/jit.nbi"):
        (tree / made).parent.mkdir(parents=True)
        (tree / made).touch()
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the sdist, as an installer makes it."""
    out = tmp_path_factory.mktemp("dist")
    built("sdist", tree, out)
    [packed] = out.glob("*.tar.gz")
    shutil.unpack_archive(packed, out)
    [unpacked] = [each for each in out.iterdir() if each.is_dir()]
    built("wheel", unpacked, out)
    [wheel] = out.glob("*.whl")
    return wheel


def test_a_wheel_of_an_sdist_of_a_built_tree_holds_the_sources_and_nothing_that_was_compiled(
    wheel: Path, files: list[str]
) -> None:
    with zipfile.ZipFile(wheel) as packed:
        inside = {name for name in packed.namelist() if ".dist-info/" not in name}
        [command] = [name for name in inside if ".data/scripts/" in name]
        inside = inside - {command} | {f"experiments/cli/{command.rpartition('/')[2]}"}
        [licence] = [name for name in packed.namelist() if name.endswith("LICENSE")]
        assert packed.read(licence) == (ROOT / "LICENSE").read_bytes()
    evidence = {name for name in files if name.startswith("experiments/values/")}  # for the docs, which are in no wheel
    expected = {
        name for name in files if name.startswith((*PACKAGES, "reclaimnet")) and not name.endswith(".md")
    } - evidence
    assert evidence and inside == expected


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel, and with what it needs, but nothing of this tree."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    made = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(place)]
    subprocess.run(made, check=True, capture_output=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    [packages] = place.glob("lib/python*/site-packages")
    # dependencies of this very environment, whose own .pth files (the tree's among them) are not read there
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return place / "bin"


def used(installed: Path, here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [str(installed / words[0]), *words[1:]]
    return subprocess.run(argv, cwd=here, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_the_installed_wheel_is_a_program_that_works_without_the_tree(installed: Path, tmp_path: Path) -> None:
    where = used(
        installed, tmp_path, "python", "-c", "import experiments, bpf; print(experiments.__file__, bpf.__file__)"
    )
    assert where.stdout.count(str(installed.parent)) == 2
    version = used(installed, tmp_path, "reclaimnet", "--version")
    assert "commit unknown" in version.stdout, version.stderr
    doctor = json.loads(used(installed, tmp_path, "reclaimnet", "doctor", "--json").stdout)
    assert doctor["capabilities"]
    played = used(installed, tmp_path, "reclaimnet", "simulate", "example:lab", "--out", "out/lab")
    assert played.returncode == 0, played.stderr
    assert "lab" in (tmp_path / "out/index.html").read_text()  # its templates, style and script are there


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang on this machine")
def test_the_bpf_programs_of_the_installed_wheel_compile(installed: Path, tmp_path: Path) -> None:
    done = used(installed, tmp_path, "python", "-m", "bpf.build")
    assert done.returncode == 0, done.stderr
    sources = list((ROOT / "bpf/src").glob("*.bpf.c"))
    assert len(list(installed.parent.rglob("*.bpf.o"))) == len(sources) > 0


def test_the_page_of_installing_works_as_it_is_printed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the network: what the wheel needs is that of this environment."""
    for name in ("NO_INDEX", "NO_DEPS", "DISABLE_PIP_VERSION_CHECK"):
        monkeypatch.setenv(f"PIP_{name}", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip's own word for "without"
    environment = "lab/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'"
    with Shell(tmp_path) as shell:
        shutil.copytree(tree, tmp_path, dirs_exist_ok=True)
        for block in typed("docs/install.md"):
            for command in block.commands:
                said = shell.run(command) if why_not_played(command) is None else ""
                assert ("BPF programs" in said) == command.endswith("doctor")
                if " -m venv " in command:
                    packages = Path(shell.run(environment).strip())
                    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
