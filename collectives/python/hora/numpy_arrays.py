# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays, as the runtime sees them."""

from __future__ import annotations

import ctypes

import numpy as np

from hora import _native, dtypes
from hora.tensor_ops import Framework, byte_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_CODE_OF = {}
_DTYPE_OF = {}
for _code, _name in dtypes.NAME_OF_CODE.items():
    try:
        _CODE_OF[np.dtype(_name)] = _code
        _DTYPE_OF[_code] = np.dtype(_name)
    except TypeError:
        pass  # bfloat16, unless an extension (ml_dtypes) brings it


def _learn_dtype(dtype):
    """The code of a dtype seen for the first time: an extension's bfloat16, or a TypeError."""
    code = dtypes.code_of(dtype.name)
    if not dtype.isnative:
        raise TypeError(f"arrays of dtype {dtype} cannot be communicated: their byte order is not native")
    _CODE_OF[dtype] = code
    _DTYPE_OF.setdefault(code, dtype)
    return code


def copy_of_memory(address: int, shape: Sequence[int], dtype: Any) -> Any:
    """A new array with a copy of the memory at address; dtype is a code."""
    out = np.empty(shape, dtype=_DTYPE_OF[dtype])
    size = byte_count(shape, dtype)
    if size:
        ctypes.memmove(out.__array_interface__["data"][0], address, size)
    return out


_addressof = ctypes.addressof
_memory_of = ctypes.c_char.from_buffer


class NumpyFramework(Framework):
    name = "numpy"

    def dense(self, tensor: Any) -> Any:
        return np.asarray(tensor, order="C")

    def dense_in_place(self, tensor: Any) -> Any:
        if not isinstance(tensor, np.ndarray):
            raise TypeError(f"an in-place operation needs a numpy.ndarray, not {type(tensor).__name__}")
        if not tensor.flags.writeable:
            raise ValueError("an in-place operation needs a writable array; this one is read-only")
        return self.dense(tensor)

    def plain(self, tensor: Any, written: bool) -> Any:
        if tensor.__class__ is not np.ndarray or not tensor.flags.c_contiguous:
            return None
        code = _CODE_OF.get(tensor.dtype)
        if code is None:
            return None
        try:  # a quarter of what __array_interface__ takes
            return _addressof(_memory_of(tensor)), tensor.shape, code
        except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype that Python does not know
            return None

    def view(self, tensor: Any) -> Any:
        dtype = tensor.dtype
        code = _CODE_OF.get(dtype)
        if code is None:
            code = _learn_dtype(dtype)
        return (tensor.__array_interface__["data"][0], tensor.shape, code, _native.CPU_DEVICE, 0)

    def address(self, tensor: Any) -> int:
        try:
            return _addressof(_memory_of(tensor))
        except (TypeError, ValueError, BufferError):
            return tensor.__array_interface__["data"][0]

    def empty_like(self, tensor: Any) -> Any:
        return np.empty(tensor.shape, tensor.dtype)

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        return copy_of_memory(address, shape, dtype)

    def from_integers(self, values: Sequence[Any], like: Any) -> Any:
        return np.array(values, dtype=np.int32)

    def assign(self, tensor: Any, source: Any) -> None:
        tensor[...] = source
