"""The body: hosts, links, agents, checkpoints, transfers, and the enforcement of rates.

May import `topologies` and `bpf`. Begin with `agent/core/agent.py` for what an agent decides and `emulation/campus.py`
for where it lives.

`agent` is one host's agent and `workloads` are what jobs run. Checkpoints are at rest in `checkpoints` and on their way
in `transfer`. `emulation` is the live campus, `model` the network of the virtual one.

Leaves:

- `owner`: an owner's click. It stores into the host's map in the kernel, which `bpf/src/ingress.bpf.c` reads at each
  packet, then notifies the agent.
- `enforcement`: from a grant to what the kernel enforces.
- `messages` over `wire` and `framing`; `bounds` of every number in them; `driver`, the loop around a core.
- `clock`; `peers` (what one may take of a service); `program` (what jobs of executables are).
- `identity` (of processes), `own_programs` (how they start), `linux` (system calls that Python lacks), `namespaces`,
  `logs`, `errors`.

From Python, `from testbed import Campus`: a Mininet network of a described campus (docs/api.md). It is imported when it
is asked for.
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
