"""Objects that users bring without touching the project.

Such an object is in a module of the user's own (`"module:name"`). Or an installed package offers it under a name, by
an entry point of a group below.

A module is looked for on Python's path, and then in the folder in which the program was started; it runs with the
user's own rights. Names of the project's own come first: no package can replace them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from topologies.errors import SpecError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROJECT = ("bpf", "controller", "experiments", "testbed", "topologies")  # its packages
POLICIES, WORKLOADS = "reclaimnet.policies", "reclaimnet.workloads"
TRACES, TOPOLOGIES = "reclaimnet.traces", "reclaimnet.topologies"
_REFERENCE = re.compile(r"(?!example:)([^\W\d]\w*(?:\.[^\W\d]\w*)*):([\w.-]+)")


def is_reference(name: str) -> bool:
    """Return whether a text has the form `module:name`."""
    return _REFERENCE.fullmatch(name) is not None


def offered(group: str) -> tuple[str, ...]:
    """Return the names under which installed packages offer objects of a group, in order."""
    return tuple(sorted(_entries(group)))


def is_plugin(name: str, group: str) -> bool:
    """Return whether `find` would look for an object: a text `module:name`, or a name that a package offers."""
    return is_reference(name) or (name.isprintable() and "/" not in name and name in _entries(group))


def target(name: str, group: str) -> str:
    """Return `module:name` of a name that a package offers; any other text unchanged."""
    entry = _entries(group).get(name)
    return f"{entry.module}:{entry.attr}" if entry else name


def find(key: str, name: str, group: str, allowed: str, among: str | None = None) -> object:
    """Return the object of that name; `among` is a dict of the module that has further names.

    SpecError for `key` states what is allowed and what is wrong. The name may have no such form, or the module no
    such name. The module may not be found, or fail (in the line given).
    """
    parts = _REFERENCE.fullmatch(target(name, group))
    if parts is None:
        near = f"; installed packages offer {', '.join(offered(group))}" if offered(group) else ""
        if name.isidentifier() and Path(f"{name}.py").is_file():
            near += f'; there is a file {name}.py: one of its names is "{name}:NAME"'
        raise SpecError(key, name, f"{allowed}{near}")
    own = allowed.find('"module:NAME"')  # the project's are no news to those who named a module
    allowed = allowed[max(own, 0) :]
    module = _module(key, name, parts[1], allowed)
    found: object = module
    for attribute in parts[2].split("."):
        found = getattr(found, attribute, None)
    table = getattr(module, among, None) if among else None
    listed = table.get(parts[2]) if isinstance(table, dict) else None
    if listed is not None and not isinstance(found, type(listed)):  # a rule may be called like the row that has it
        found = listed
    if found is None:
        names = [str(each) for each in (*(table if isinstance(table, dict) else ()), *_public(module))]
        near = nearest(parts[2], names, " (nearest: {})")
        has = ", ".join(names[:12]) or "nothing"
        raise SpecError(key, name, f"module {parts[1]} has no {parts[2]}, it has {has}{near}; allowed: {allowed}")
    return found


def call(key: str, name: str, function: Callable[..., object], *given: object) -> object:
    """Call a user's function. SpecError for `key`: it raises; the message names the line."""
    try:
        return function(*given)
    except SpecError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecError(
            key, name, f"a function that does not fail: {where(error, module_of(function))}{error!r}"
        ) from error


def sources(name: str, group: str) -> dict[str, Path]:
    """Return the files that an object's code is in, by their names from a folder of Python's path, in order.

    They are its module's file and those that it imports from the same folder, or all Python files of its package.
    Empty for a name of the project's own. Files that the code reads while it runs are not among them.
    """
    parts = _REFERENCE.fullmatch(target(name, group))
    if parts is None:
        return {}
    top = sys.modules.get(parts[1].partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is not None and hasattr(top, "__path__"):
        folders = [Path(folder) for folder in top.__path__]
        found = {path: folder.parent for folder in folders for path in folder.rglob("*.py")}
    else:
        found = dict.fromkeys(_beside(Path(file)), Path(file).parent) if file else {}
    return dict(sorted((str(path.relative_to(root)), path) for path, root in found.items()))


def _module(key: str, name: str, module_name: str, allowed: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # a notebook may have written the file a moment ago
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        why = (
            f"there is no module {error.name} in {here} or on Python's path"  # type: ignore[union-attr]
            if is_missing
            else f"module {module_name} fails: {_said(error, module_name)}"
        )
        raise SpecError(key, name, f"{why}; allowed: {allowed}") from error


def _said(error: BaseException, module_name: str) -> str:
    """Return the error in one line, and where it came from."""
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    return f"{where(error, module_name)}{error!r}"


def where(error: BaseException, module_name: str) -> str:
    """Return the file and line that an error came from.

    That is the last line of the module's package, or of another file beside the module's: a library that was called with
    invalid arguments is not named. Without such a line it is the last of all.
    """
    top, at = module_name.partition(".")[0], list[tuple[bool, Path, int]]()
    for frame, line in walk_tb(error.__traceback__):
        file, name = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if not file.startswith("<frozen") and file != __file__ and "importlib" not in file:
            at.append((name.partition(".")[0] == top, Path(file), line))
    folders = {file.parent for is_theirs, file, _ in at if is_theirs}
    theirs = [place for place in at if place[0] or place[1].parent in folders]
    return "".join(f"{file.name}, line {line}: " for _, file, line in (theirs or at)[-1:])


def module_of(function: object) -> str:
    """Return the name of the module that a function, or the class of what can be called, was written in."""
    if isinstance(function, partial):
        return module_of(function.func)
    return getattr(function, "__module__", None) or type(function).__module__


def _public(module: ModuleType) -> list[str]:
    """Return the names that the module itself gives to something."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and not (isinstance(value, type | FunctionType) and value.__module__ != module.__name__)
    ]


def _beside(file: Path) -> set[Path]:
    """Return the file, and those that it and they import from its folder."""
    from modulefinder import ModuleFinder  # late: most programs never ask

    finder = ModuleFinder([str(file.parent)])
    finder.run_script(str(file))
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {Path(each) for each in files if each}


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # late: it costs 15 ms, and most programs never ask

    return {entry.name: entry for entry in entry_points(group=group)}
