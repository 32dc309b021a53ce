# SPDX-License-Identifier: Apache-2.0
"""The gradients of allreduces that choose elements, outside of compiled code and inside."""

from __future__ import annotations

import torch

from hora.basics import Max, Min, Product, Sum
from hora.names import derived

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hora.process_sets import ProcessSet


# Min and Max pass each gradient to the ranks whose element was chosen (in equal parts), Product
# to every rank, multiplied by the others' elements. Adding up, as for Sum, would be wrong.
SELECTING = (Min, Max, Product)


def selecting_gradient(
    gradient: torch.Tensor,
    source: torch.Tensor,
    output: torch.Tensor,
    op: int,
    prescale: float,
    postscale: float,
    name: str | None,
    process_set: ProcessSet,
    reduce: Callable[..., torch.Tensor],
    gather: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """The gradient of an allreduce by Min, Max or Product, made of an allreduce and an allgather."""
    total = reduce(gradient, name, Sum, 1.0, 1.0, process_set)
    if op == Product:
        gathered = gather(source.unsqueeze(0), derived(name, "others"), process_set)
        gathered = gathered * prescale
        rows = [row for row in range(process_set.size()) if row != process_set.rank()]
        return total * gathered[rows].prod(dim=0) * (prescale * postscale)
    chosen = (source * prescale * postscale == output).to(gradient.dtype)
    ties = reduce(chosen, derived(name, "ties"), Sum, 1.0, 1.0, process_set)
    return total * chosen / ties.clamp(min=1) * (prescale * postscale)
