# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tensors, as the runtime sees them: NumPy views of their memory, or DeviceArrays where that is on a
GPU."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from hora import device_arrays, dtypes
from hora.device_arrays import DeviceArray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What DLPack carries from NumPy; bfloat16 is not among NumPy's own dtypes.
_EXCHANGED = {
    np.dtype(name)
    for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
}
_BFLOAT16 = np.dtype(tf.bfloat16.as_numpy_dtype)


class _TensorflowSource(device_arrays.Source):
    """TensorFlow's DLPack knows no streams: exporting a tensor waits for all work on its device."""

    def export(self, tensor: Any) -> Any:
        return tf.experimental.dlpack.to_dlpack(tensor)

    def dtype_name(self, tensor: Any) -> str:
        return tensor.dtype.name

    def fresh(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        # An operation's output, which nothing else has: tf.zeros() gives small tensors out twice.
        with tf.device(like.backing_device):
            return tf.raw_ops.Fill(dims=tf.constant(list(shape), tf.int64), value=tf.zeros([], dtype))


source = _TensorflowSource()


@functools.lru_cache(maxsize=None)
def keeps_gpu_tensors() -> bool:
    """Whether there is a GPU, and tensors on it are to stay there."""
    return device_arrays.wanted() and bool(tf.config.list_logical_devices("GPU"))


def is_on_gpu(tensor: Any) -> bool:
    """Whether an eager tensor's memory is on a GPU: that of int32 mostly is not, whatever tensor.device says. Types
    that only NumPy can show as bytes go through the CPU."""
    return keeps_gpu_tensors() and tensor.dtype.name in dtypes.CODE_OF_NAME and "GPU" in tensor.backing_device


def to_tensor(value: Any) -> Any:
    """tf.convert_to_tensor(), which in a graph would take the bytes of a big-endian array as they are. ValueError for
    ragged and sparse tensors."""
    for kind, dense in ((tf.RaggedTensor, "tensor.to_tensor()"), (tf.SparseTensor, "tf.sparse.to_dense(tensor)")):
        if isinstance(value, kind):
            raise ValueError(f"this operation needs a dense tensor, not a tf.{kind.__name__}; pass {dense}")
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return tf.convert_to_tensor(value)


def as_array(tensor: Any) -> Any:
    """A view of an eager tensor's memory."""
    if is_on_gpu(tensor):
        return DeviceArray(tensor, source)
    if tensor.shape.rank:
        return np.asarray(tensor)
    return np.asarray(tensor.numpy(), dtype=tensor.dtype.as_numpy_dtype)


def known(array: Any) -> Any:
    """The same array with a dtype of TensorFlow's: before 2.14, its bfloat16 was not that of ml_dtypes."""
    return array.view(_BFLOAT16) if array.dtype.name == "bfloat16" else array


def as_tensor(array: Any) -> Any:
    """The eager tensor that takes over an array's memory, where the array is aligned."""
    array = known(array)
    if array.dtype not in _EXCHANGED or not array.size:
        return tf.constant(array)
    try:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    except (BufferError, TypeError, RuntimeError, AttributeError):
        return tf.constant(array)  # an older NumPy: no bool


def as_output(array: Any, like: Any) -> Any:
    """as_tensor() on the device of the input that the result belongs to."""
    if type(array) is DeviceArray:
        return array.tensor
    tensor = as_tensor(array)
    device = like.device
    if device and "CPU" not in device:
        with tf.device(device):
            return tf.identity(tensor)
    return tensor
