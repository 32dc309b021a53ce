# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays whose memory TensorFlow and JAX take over without a copy.

Both frameworks alias memory that begins at a multiple of 64 bytes and copy any other. The arrays
that operations answer here are allocated that way.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hora import _native, numpy_arrays
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


class AlignedFramework(numpy_arrays.NumpyFramework):
    """NumPy's arrays; results are aligned."""

    def empty_like(self, tensor: Any) -> Any:
        return aligned_empty(tensor.shape, tensor.dtype)

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        assert device == _native.CPU_DEVICE
        out = aligned_empty(shape, numpy_arrays._DTYPE_OF[dtype])
        size = byte_count(shape, dtype)
        if size:
            ctypes.memmove(out.__array_interface__["data"][0], address, size)
        return out


ops = TensorOps(AlignedFramework())
