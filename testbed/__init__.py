"""The body: hosts, links, agents, checkpoints, transfers, and the enforcement of rates. May import `topologies` and `bpf`.
Begin with `agent/core.py` for what an agent decides and `emulation/campus.py` for where it lives.

From Python, `from testbed import Campus`: a Mininet network of a described campus (docs/api.md). It is imported when it is
asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from testbed.emulation.campus import LiveCampus as Campus

__all__ = ["Campus"]


def __getattr__(name: str) -> object:
    if name != "Campus":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from testbed.emulation.campus import LiveCampus

    return LiveCampus


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
