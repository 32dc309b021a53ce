# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays whose memory TensorFlow and JAX take over without a copy, and their tensors in GPU memory.

Both frameworks alias memory that begins at a multiple of 64 bytes and copy any other. The arrays
that operations answer here are allocated that way. A DeviceArray is answered by one of its own kind.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hora import _native, device_arrays, dtypes, numpy_arrays
from hora.device_arrays import DeviceArray
from hora.tensor_ops import TensorOps, byte_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ALIGNMENT = 64


def aligned_empty(shape: Sequence[int], dtype: Any) -> Any:
    """A row-major array with any values, aligned to ALIGNMENT."""
    dtype = np.dtype(dtype)
    count = 1
    for extent in shape:
        count *= extent
    raw = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


_view = numpy_arrays.NumpyFramework.view


class AlignedFramework(numpy_arrays.NumpyFramework):
    """NumPy's arrays, whose results are aligned, and DeviceArrays."""

    def dense(self, tensor: Any) -> Any:
        """See Framework.dense()."""
        return tensor if type(tensor) is DeviceArray else np.asarray(tensor, order="C")

    # Not by super(): every operation comes through here.
    def view(self, tensor: Any, op: int = dtypes.COPY) -> Any:
        """See Framework.view()."""
        return tensor.where() if type(tensor) is DeviceArray else _view(self, tensor, op)

    def address(self, tensor: Any) -> int:
        """See Framework.address()."""
        return tensor.address if type(tensor) is DeviceArray else tensor.__array_interface__["data"][0]

    def empty_like(self, tensor: Any) -> Any:
        """See Framework.empty_like()."""
        if type(tensor) is DeviceArray:
            return tensor.another()
        return aligned_empty(tensor.shape, tensor.dtype)

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        """See Framework.from_native()."""
        size = byte_count(shape, dtype)
        if type(like) is DeviceArray:
            made = like.another(shape, dtype)
            made.fill_from(address, size)
            return made
        assert device == _native.CPU_DEVICE
        out = aligned_empty(shape[: like.ndim], like.dtype)
        if size:
            ctypes.memmove(out.__array_interface__["data"][0], address, size)
        return out

    def settler(self, device: int) -> Any:
        """See Framework.settler()."""
        return device_arrays.settler(device)


ops = TensorOps(AlignedFramework())
