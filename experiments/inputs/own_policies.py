"""A user's own policies: a Python file whose `POLICIES` has rows like those of `controller.core.policies.table`.

Its rows stand beside the project's in this process and in all that it forks; the file runs with the user's own rights.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from controller.core.policies.table import POLICIES, Policy
from topologies.errors import SpecError


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
