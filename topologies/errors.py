"""The root of the project's errors, and the one error that a user's file can cause."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class TestbedError(Exception):
    """Base of the errors that this project raises on purpose; the command line prints them without a traceback."""

    __test__ = False  # pytest: not a test case


class SpecError(TestbedError):
    """The user's description (file or argument) is wrong.

    `key` is the dotted path of the value ("hosts.h3.gpus"), `value` what was found, `allowed` what would be right.
    `source` is the file it came from, if any.
    """

    def __init__(self, key: str, value: object, allowed: str, source: str | None = None) -> None:
        self.key, self.value, self.allowed, self.source = key, value, allowed, source
        super().__init__(key, value, allowed, source)

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{where}{self.key} = {self.value!r}: {self.allowed}"

    def within(self, source: str) -> SpecError:
        """Return the same error with the file that it came from."""
        return SpecError(self.key, self.value, self.allowed, source)


def nearest(name: object, known: Iterable[str], hint: str = "; nearest: {}") -> str:
    """Return a hint at the known name that is nearest to this one; empty if none is near."""
    import difflib  # late: an owner's reclaim makes no mistake

    return "".join(map(hint.format, difflib.get_close_matches(str(name), list(known), n=1)))
