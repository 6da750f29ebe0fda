"""A user's own policies: a row of a module (`module:NAME`), of an installed package (entry points `reclaimnet.policies`), or of a
Python file whose `POLICIES` has rows like those of `controller.core.policies.table`.

They stand beside the project's in this process and in all that it forks; a name is looked up anew in any other process.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from bpf.caches import fingerprint
from controller.core.policies.table import POLICIES, Policy
from topologies import plugins
from topologies.errors import SpecError

_OWN = '"module:NAME" of a controller.core.policies.table.Policy'


def find_policy(name: str, key: str = "policy") -> Policy:
    """The row of that name, ours or a user's; a user's is added to the table.

    A user's name is that of an entry point, or `module:NAME`, where NAME is a `Policy` of the module or a key of its `POLICIES`.
    SpecError, for `key`, says what was wrong and what is allowed.
    """
    row = POLICIES.get(name)
    if row is None:
        allowed = f"one of {', '.join(POLICIES)}, or {_OWN}"
        found = plugins.find(key, name, plugins.POLICIES, allowed, among="POLICIES")
        if not isinstance(found, Policy):
            raise SpecError(
                key,
                name,
                f"that is a {type(found).__name__}, no Policy; allowed: {_OWN if plugins.is_reference(name) else allowed}",
            )
        row = POLICIES[name] = found
    return row


def source_of(name: str) -> str:
    """A fingerprint of the code that a user's policy came with (`plugins.sources`); empty for a row of the project's own."""
    files = plugins.sources(name, plugins.POLICIES)
    return fingerprint(files.values(), *files) if files else ""


def forget(modules: Collection[str]) -> None:
    """Take the rows of users' modules out of the table: their code is about to change."""
    for name in [
        each for each in POLICIES if ":" in each and each.partition(":")[0].partition(".")[0] in modules
    ]:
        del POLICIES[name]


def add_policies(path: Path) -> tuple[str, ...]:
    """Run the file and add its rows; their names.

    SpecError: there is no such file, it fails (with the line), it has no `POLICIES`, a row is no `Policy`, or a name is taken.
    """
    if not path.is_file():
        raise SpecError("policies", str(path), "a Python file").within(str(path))
    spec = spec_from_file_location(f"own_policies_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SpecError("policies", str(path), "a file that ends in .py").within(str(path))
    module = module_from_spec(spec)
    plugins.is_users(path)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        place, at = error.__traceback__, ""
        while place is not None:
            if place.tb_frame.f_code.co_filename == str(path):
                at = f"line {place.tb_lineno}: "
            place = place.tb_next
        raise SpecError("policies", f"{at}{error!r}", "Python that runs").within(str(path)) from error
    rows = getattr(module, "POLICIES", None)
    if not isinstance(rows, dict) or not rows:
        raise SpecError("POLICIES", rows, 'a dict such as {"mine": Policy("what it does")}').within(str(path))
    for name, row in rows.items():
        if not isinstance(name, str) or not isinstance(row, Policy):
            raise SpecError(f"POLICIES[{name!r}]", row, "a controller.core.policies.table.Policy").within(
                str(path)
            )
        if POLICIES.get(name, row) != row:
            raise SpecError("POLICIES", name, "a name that no row of the project has").within(str(path))
    POLICIES.update(rows)
    return tuple(rows)
