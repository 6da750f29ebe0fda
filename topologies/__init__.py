"""The description of a campus: frozen, validated data; nothing here runs.

Imports no other package of the project. Begin with `spec`. `presets` has the campuses of the paper, `files` the TOML
form, `graphml` and `of_mininet` others' networks, `paths` the routes, `addresses` names and addresses. `openflow` has
the messages to a controller of switches, `as_mininet` the campus for stock Mininet, `plugins` what users bring. Files:
`toml`, `tables`, `keys`; numbers: `units`, `dimension`, `scale`.

From Python, `from topologies import three_tier, load` and what else `__all__` names; docs/api.md. Each is imported
when it is first asked for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from topologies.files import campus54 as campus54
    from topologies.files import dumps as dumps
    from topologies.files import load as load
    from topologies.files import loads as loads
    from topologies.of_mininet import from_mininet as from_mininet
    from topologies.presets import fat_tree as fat_tree
    from topologies.presets import leaf_spine as leaf_spine
    from topologies.presets import three_tier as three_tier

__all__ = ["campus54", "dumps", "fat_tree", "from_mininet", "leaf_spine", "load", "loads", "three_tier"]
_PLACES = {"from_mininet": "of_mininet"} | dict.fromkeys(("campus54", "dumps", "load", "loads"), "files")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"topologies.{_PLACES.get(name, 'presets')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
