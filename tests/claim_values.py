"""Values of claims as tests change them."""

from dataclasses import replace

from experiments.claims.framework.values import Value, Values


def changed(values: Values, system: str, quantity: str, measured: float, *, group: str | None = None) -> Values:
    """Put one number elsewhere, and be sure of it; without a group, in every group."""

    def is_meant(row: Value) -> bool:
        return (row.system, row.quantity) == (system, quantity) and group in (None, row.group)

    assert any(map(is_meant, values.rows))
    sure = {"measured": measured, "low": measured, "high": measured}
    return replace(values, rows=tuple(replace(row, **sure) if is_meant(row) else row for row in values.rows))
