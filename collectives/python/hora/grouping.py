# SPDX-License-Identifier: Apache-2.0
"""How gradients are put into groups; pure."""

from __future__ import annotations

import numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def split_list(items: Iterable[Any], parts: int) -> list[list[Any]]:
    """At most `parts` consecutive lists of nearly equal length, the longer ones first."""
    items = list(items)
    parts = max(1, min(parts, len(items)))
    base, longer = divmod(len(items), parts)
    lists, start = [], 0
    for index in range(parts):
        end = start + base + (1 if index < longer else 0)
        if end > start:
            lists.append(items[start:end])
        start = end
    return lists


def check_groups(groups: Any, num_groups: Any) -> int | list[list[Any]] | None:
    """The `groups=` argument, with the older `num_groups=` folded in: None, a positive integer,
    or a list of lists. ValueError says what is wrong."""
    if num_groups:
        import warnings

        if groups is not None:
            raise ValueError("give groups= or num_groups=, not both (num_groups= is the old way)")
        warnings.warn("num_groups= is deprecated; use groups=", DeprecationWarning, stacklevel=3)
        if num_groups < 0:
            raise ValueError(f"num_groups={num_groups}: expected a positive number, or 0 for none")
        return int(num_groups)
    if groups is None:
        return None
    if isinstance(groups, numbers.Integral) and not isinstance(groups, bool):
        if groups <= 0:
            raise ValueError(f"groups={groups}: expected a positive number of groups, or a list of lists of tensors")
        return int(groups)
    if isinstance(groups, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in groups):
        return [list(group) for group in groups]
    raise ValueError(f"groups= must be a positive integer or a list of lists of tensors, not {type(groups).__name__}")


def check_predivide(factor: float, op: int, average: int) -> tuple[float, float]:
    """The scales before and after the reduction for gradient_predivide_factor."""
    if not isinstance(factor, numbers.Real):
        raise TypeError(f"gradient_predivide_factor={factor!r}: expected a positive number")
    if factor == 1.0:
        return 1.0, 1.0
    if not factor > 0:
        raise ValueError(f"gradient_predivide_factor={factor}: expected a positive number")
    if op != average:
        raise ValueError(
            "gradient_predivide_factor needs op=Average: it moves a part of the average's division before the sum"
        )
    return 1.0 / factor, factor
