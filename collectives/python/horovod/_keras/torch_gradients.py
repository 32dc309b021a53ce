# SPDX-License-Identifier: Apache-2.0
"""Gradients of Keras's PyTorch backend."""

from __future__ import annotations

import torch

from hora import batches
from horovod._keras.array_gradients import ArrayReducer
from horovod.torch.compression import Compression
from horovod.torch.tensors import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class TorchReducer(ArrayReducer):
    """Reduces the gradients of Keras's PyTorch backend."""

    def reduce_units(self, units: Sequence[Sequence[Any]], names: Sequence[str]) -> Any:
        """The reduced gradients of each unit, all in flight at once. Collective."""
        compression = getattr(Compression, self.compression)
        compressed = [[compression.compress(gradient.detach()) for gradient in unit] for unit in units]

        def begin():
            for unit, name in zip(compressed, names):
                yield ops.allreduce(
                    [wire for wire, _ in unit],
                    name,
                    self.op,
                    self.prescale,
                    self.postscale,
                    self.process_set,
                    grouped=len(unit) > 1,
                )

        with torch.no_grad():
            reduced = iter(batches.run(begin))
            return [[compression.decompress(next(reduced), context) for _, context in unit] for unit in compressed]
