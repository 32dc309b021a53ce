# SPDX-License-Identifier: Apache-2.0
"""How a set of gradients is reduced: the part that is the same for every framework."""

from __future__ import annotations

import os

from hora import grouping
from hora.basics import Average
from hora.compression import checked
from hora.operations import set_id_of
from hora.process_sets import global_process_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from hora.process_sets import ProcessSet


def is_needed(process_set: ProcessSet) -> bool:
    """Whether gradients have to be reduced: this process is a member of the set and not its only one. In an elastic job
    other members may join, so one is enough."""
    if not process_set.included():
        return False
    return process_set.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"


class GradientReducer:
    """Which gradients are reduced together, and how. Local variables stay out: their gradients
    are each rank's own, divided by the number of ranks where scale_local is set."""

    def __init__(
        self,
        prefix: str,
        op: int = Average,
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local: bool = True,
    ) -> None:
        set_id_of(process_set)  # raises
        self.prefix = prefix
        self.op = op
        self.compression: Any = None if compression is None else checked(compression)
        self.sparse_as_dense = sparse_as_dense
        self.prescale, self.postscale = grouping.check_predivide(gradient_predivide_factor, op, Average)
        self.groups = grouping.check_groups(groups, num_groups)
        self.process_set = process_set
        self.scale_local = scale_local
        self._local: set[Any] = set()

    @staticmethod
    def reference(variable: Any) -> Any:
        """What two mentions of one variable have in common, as a key."""
        return id(variable)

    def register_local(self, variable: Any) -> None:
        """The gradient of this variable is not reduced."""
        self._local.add(self.reference(variable))

    def is_local(self, variable: Any) -> bool:
        """Whether this variable's gradient is not reduced."""
        return bool(self._local) and self.reference(variable) in self._local

    def is_needed(self) -> bool:
        """See is_needed(), of this reducer's process set."""
        return is_needed(self.process_set)

    def densify(self, gradient: Any) -> Any:
        """The gradient in the form in which it is reduced: dense unless sparse gradients were requested."""
        return gradient

    def scaled_local(self, gradient: Any) -> Any:
        """The gradient of a local variable, divided by the number of ranks."""
        return gradient / self.process_set.size()

    def reduce(self, gradients: Any, variables: Any = None) -> Any:
        """The reduced gradients, in order; None stays None."""
        results = [self.densify(gradient) for gradient in gradients]
        if not self.is_needed():
            return results
        variables = list(variables) if variables is not None else [None] * len(results)
        chosen = []
        for index, (gradient, variable) in enumerate(zip(results, variables)):
            if gradient is None:
                continue
            if variable is None or not self.is_local(variable):
                chosen.append(index)
            elif self.scale_local:
                results[index] = self.scaled_local(gradient)
        if chosen:
            self.reduce_chosen(chosen, variables, results)
        return results

    def reduce_chosen(self, chosen: Sequence[int], variables: Any, results: list[Any]) -> Any:
        """Replaces the gradients at the chosen positions of `results` by reduced ones."""
        raise NotImplementedError

    def units(self, chosen: Sequence[int], variables: Any) -> Any:
        """Lists of positions that are reduced as one group; most are lists of one."""
        if self.groups is None:
            return [[index] for index in chosen]
        if isinstance(self.groups, int):
            return grouping.split_list(chosen, self.groups)
        position_of = {self.reference(variables[index]): index for index in chosen if variables[index] is not None}
        units, placed = [], set()
        for group in self.groups:
            unit = [
                position_of[self.reference(variable)] for variable in group if self.reference(variable) in position_of
            ]
            placed.update(unit)
            if unit:
                units.append(unit)
        return units + [[index] for index in chosen if index not in placed]
