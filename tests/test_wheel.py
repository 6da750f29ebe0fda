"""A wheel and an sdist hold what the program needs, and what they hold works where nothing of the tree is."""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

from tests.doc_pages import Shell, typed, why_not_played

# what is installed anew compiles its machine code: half a minute of a processor that may have other work
pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
COMMIT = "experiments/runtime/commit.txt"
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
    git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *words], check=True)
    with (tree / ".git/info/exclude").open("a") as ignored:
        ignored.write("*.bpf.o\n*.nbi\n*.egg-info\n/build\n")
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
    assert evidence and inside == expected | {COMMIT}


def test_a_package_index_is_told_where_all_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        [described_in] = [name for name in packed.namelist() if name.endswith("METADATA")]
        head, _, page = packed.read(described_in).decode().partition("\n\n")
    described = ConfigParser()
    described.read(ROOT / "setup.cfg")
    place = described["metadata"]["url"]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links and all(link.startswith(f"{place}/") for link in links)
    assert {(ROOT / link.removeprefix(f"{place}/").partition("#")[0]).exists() for link in links} == {True}
    for key in ("Author", "Project-URL", "Classifier", "License-File", "Keywords"):
        assert f"\n{key}: " in head, key


def size_mb(distribution: str) -> float:
    files = metadata.files(distribution) or []
    return sum(file.stat().st_size for each in files if (file := Path(str(each.locate()))).is_file()) / 1e6


def test_what_a_virtual_campus_needs_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    """Without bytecode, which is a third more. `make virtual-size` installs it in an empty environment."""
    described = ConfigParser()
    described.read(ROOT / "setup.cfg")
    wanted, sizes = described["options"]["install_requires"].splitlines(), dict[str, float]()
    while wanted:
        name = re.split(r"[ ;<>=!\[(~]", wanted.pop())[0].lower()
        with suppress(metadata.PackageNotFoundError):  # of another system or version
            if name and name != "#" and name not in sizes:
                sizes[name] = size_mb(name)
                wanted += [each for each in metadata.requires(name) or () if "extra ==" not in each]
    heavy = sorted(sizes.items(), key=lambda each: -each[1])[:12]
    with capsys.disabled():
        print(f"\n{sum(sizes.values()):.0f} MB:", ", ".join(f"{name} {size:.0f}" for name, size in heavy))
    assert {"numpy", "matplotlib", "trio"} <= sizes.keys() and sum(sizes.values()) < 250


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


def test_the_installed_wheel_is_a_program_that_works_without_the_tree(
    installed: Path, tree: Path, tmp_path: Path
) -> None:
    where = used(
        installed, tmp_path, "python", "-c", "import experiments, bpf; print(experiments.__file__, bpf.__file__)"
    )
    assert where.stdout.count(str(installed.parent)) == 2
    version = used(installed, tmp_path, "reclaimnet", "--version")
    [commit] = re.findall(r"\(commit ([0-9a-f]{7,}), ", version.stdout)  # clean, of a tree that it does not know
    assert version.stdout == used(installed, tmp_path, "python", "-m", "reclaimnet", "--version").stdout
    asked = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.startswith(commit)
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


@pytest.mark.long
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
