"""The body: hosts, links, agents, checkpoints, transfers, and the enforcement of rates. May import `topologies` and `bpf`.
Begin with `agent/core/agent.py` for what an agent decides and `emulation/campus.py` for where it lives.

`agent` (one host's), `workloads` (what jobs run), `checkpoints` (at rest) and `transfer` (on their way), `emulation` (the
live campus), `model` (the network, for the virtual one). Leaves: `owner` (an owner's click: it stores into the host's map in
the kernel, which `bpf/src/ingress.bpf.c` reads at each packet, then tells the agent), `enforcement` (from a grant to what the
kernel enforces), `messages` over `wire` and `framing`, `bounds` (of every number in them), `driver` (the loop around a core),
`clock`, `peers` (what one may take of a service), `program` (what jobs of executables are), `identity` (of processes),
`namespaces`, `logs`, `errors`.

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
