# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tensors, as the runtime sees them: NumPy views of their memory."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What DLPack carries from NumPy; bfloat16 is not among NumPy's own dtypes.
_EXCHANGED = {
    np.dtype(name)
    for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
}


def as_array(tensor: Any) -> Any:
    """A view of an eager tensor's memory; a copy where that is on a GPU."""
    if tensor.shape.rank:
        return np.asarray(tensor)
    return np.asarray(tensor.numpy(), dtype=tensor.dtype.as_numpy_dtype)


def as_tensor(array: Any) -> Any:
    """The eager tensor that takes over an array's memory, where the array is aligned."""
    if array.dtype not in _EXCHANGED or not array.size:
        return tf.constant(array)
    try:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    except (BufferError, TypeError, RuntimeError, AttributeError):
        return tf.constant(array)  # an older NumPy: no bool


def as_output(array: Any, like: Any) -> Any:
    """as_tensor() on the device of the input that the result belongs to."""
    tensor = as_tensor(array)
    device = like.device
    if device and "CPU" not in device:
        with tf.device(device):
            return tf.identity(tensor)
    return tensor
