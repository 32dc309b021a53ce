"""Reducing the gradients of backends that have dense gradients only (JAX, PyTorch)."""

import os

from hora import grouping
from hora.basics import Average
from hora.process_sets import global_process_set

from horovod._keras.backends import compression_name


class ArrayReducer:
    """How gradients are reduced; subclasses say how a list of lists of them is."""

    def __init__(self, prefix, op=Average, compression=None, sparse_as_dense=False,
                 gradient_predivide_factor=1.0, num_groups=0, groups=None,
                 process_set=global_process_set, scale_local=True):
        self.prefix = prefix
        self.op = op
        self.compression = compression_name(compression)
        self.prescale, self.postscale = grouping.check_predivide(
            gradient_predivide_factor, op, Average)
        self.groups = grouping.check_groups(groups, num_groups)
        self.process_set = process_set
        self.scale_local = scale_local
        self._local = set()

    def register_local(self, variable):
        self._local.add(id(variable))

    def is_local(self, variable):
        return id(variable) in self._local

    def densify(self, gradient):
        return gradient

    def is_needed(self):
        if not self.process_set.included():
            return False
        return self.process_set.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"

    def reduce(self, gradients, variables=None):
        """The reduced gradients, in order; None stays None."""
        results = list(gradients)
        if not self.is_needed():
            return results
        variables = list(variables) if variables is not None else [None] * len(results)
        chosen = []
        for index, (gradient, variable) in enumerate(zip(results, variables)):
            if gradient is None:
                continue
            if variable is not None and self.is_local(variable):
                if self.scale_local:
                    results[index] = gradient / self.process_set.size()
            else:
                chosen.append(index)
        units = self._units(variables, chosen)
        reduced = self.reduce_units([[results[index] for index in unit] for unit in units],
                                    [f"{self.prefix}.{unit[0]}" for unit in units])
        for unit, values in zip(units, reduced):
            for index, value in zip(unit, values):
                results[index] = value
        return results

    def _units(self, variables, chosen):
        if self.groups is None:
            return [[index] for index in chosen]
        if isinstance(self.groups, int):
            return grouping.split_list(chosen, self.groups)
        position_of = {id(variables[index]): index for index in chosen}
        units, placed = [], set()
        for group in self.groups:
            unit = [position_of[id(variable)] for variable in group if id(variable) in position_of]
            placed.update(unit)
            if unit:
                units.append(unit)
        return units + [[index] for index in chosen if index not in placed]

    def reduce_units(self, units, names):
        """Lists of reduced gradients for lists of gradients; the members of each list run
        together, and have the list's name."""
        raise NotImplementedError
