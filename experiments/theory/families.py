"""What an evaluator is, and the helpers that both papers' families use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from experiments.theory.domain import DomainError
from experiments.theory.vectors import Given

Found = Mapping[str, Any]
Evaluate = Callable[[Given, Collection[str]], Found]
"""(inputs, names of the outputs wanted) -> outputs by name; an output may be the DomainError that stands in its way."""


def attempt(formula: Callable[..., Any], *arguments: Any) -> Any:
    """The formula's value, or the DomainError that it raised: other outputs of the vector may still have one."""
    try:
        return formula(*arguments)
    except DomainError as error:
        return error
