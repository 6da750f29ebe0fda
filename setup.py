"""Parts of the package that follow from its tree: the commit it is built of, and README's links as absolute ones."""

import re
import subprocess
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
COMMIT = "experiments/runtime/commit.txt"


def note_commit(tree: Path) -> None:
    """Write the commit into a tree that is built; one that an sdist brought stays."""
    if (HERE / ".git").exists():
        asked = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
        (tree / COMMIT).write_text(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


class Wheel(build_py):
    """Build of the modules, with the commit; an editable install asks git itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            note_commit(Path(self.build_lib))


class Sdist(sdist):
    """Archive of the sources, with the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        note_commit(Path(base_dir))


described = ConfigParser()
described.read(HERE / "setup.cfg", "utf-8")
place = described["metadata"]["url"]
readme = re.sub(r"\]\((?!https?:|#)", f"]({place}/", (HERE / "README.md").read_text("utf-8"))
setup(long_description=readme, cmdclass={"build_py": Wheel, "sdist": Sdist})
