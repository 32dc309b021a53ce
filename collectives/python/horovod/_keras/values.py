# SPDX-License-Identifier: Apache-2.0
"""The collectives on single values: numbers, arrays, tensors of the backend."""

from __future__ import annotations

import numpy as np

from hora import numpy as arrays
from hora.basics import Average
from hora.operations import choose_op
from horovod._keras.compression import compression_name
from horovod._keras.variables import to_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _like(result, value):
    """The result as the kind of thing that the value was."""
    module = type(value).__module__.split(".", 1)[0]
    if module == "tensorflow":
        import tensorflow as tf

        return tf.constant(result)
    if module == "torch":
        import torch

        return torch.from_numpy(result).to(value.device)
    if module in ("jax", "jaxlib"):
        import jax.numpy as jnp

        return jnp.asarray(result)
    return result if result.ndim else result[()]


def _wire(array, compression):
    name = compression_name(compression)
    if name == "none" or array.dtype not in (np.float32, np.float64):
        return array
    if name == "bf16":
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    return array.astype(np.float16)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = None,
) -> Any:
    """Reduces a number, an array or a tensor of the backend over all ranks, with Average by default; returns the same
    kind.

    Shape and dtype are the same on all ranks. Arguments and errors are those of hora.numpy.allreduce; compression is
    Compression.none, .fp16 or .bf16. Blocks until all ranks have called it."""
    array = to_array(value)
    op = choose_op(op, average)
    if array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)  # a plain number: Keras's own float
    reduced = arrays.allreduce(
        _wire(array, compression), name=name, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    )
    return _like(reduced.astype(array.dtype, copy=False), value)


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenates the values of all ranks along the first dimension, whose extents may differ; returns the same
    kind.

    Blocks until all ranks have called it. Raises what hora.numpy.allgather raises."""
    return _like(arrays.allgather(to_array(value), name=name), value)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns the value of root_rank on every rank, as the same kind of array or tensor.

    Blocks until all ranks have called it. Raises what hora.numpy.broadcast raises.
    """
    return _like(arrays.broadcast(to_array(value), root_rank, name=name), value)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Reduces a value over all ranks, with Average or Sum, and returns this rank's part of the rows.

    Blocks until all ranks have called it. Raises what hora.numpy.reducescatter raises.
    """
    return _like(arrays.reducescatter(to_array(value), name=name, op=op), value)
