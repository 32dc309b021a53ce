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

_CODE_OF = {np.dtype(name): code for code, name in dtypes.NAME_OF_CODE.items() if code != dtypes.BFLOAT16}


def code_and_shape(dtype: Any, shape: Sequence[int], op: int) -> tuple[int, Sequence[int]]:
    """As which elements of this dtype travel. TypeError for what no other process understands."""
    code = _CODE_OF.get(dtype)
    if code is not None:
        return code, shape
    if dtype.name in dtypes.CODE_OF_NAME and dtype.isnative:  # an extension's bfloat16
        code = _CODE_OF[dtype] = dtypes.CODE_OF_NAME[dtype.name]
        return code, shape
    if dtype.hasobject:
        raise TypeError(f"arrays of dtype {dtype} cannot be communicated; allgather_object and broadcast_object do it")
    if op != dtypes.COPY and not dtype.isnative:
        raise TypeError(f"arrays of dtype {dtype} cannot be reduced: their byte order is not native")
    if op != dtypes.COPY and dtype.kind not in "uifcV":
        raise TypeError(f"arrays of dtype {dtype} are not numbers and cannot be reduced")
    name = dtype.name if dtype.isnative and dtype.fields is None else str(dtype)  # the name has no fields
    return dtypes.substitute(name, dtype.itemsize, shape, op)


def copy_of_memory(address: int, shape: Sequence[int], dtype: Any, like: Any) -> Any:
    """A new array like another one, with a copy of the memory at address; dtype is a code."""
    out = np.empty(shape[: like.ndim], dtype=like.dtype)
    size = byte_count(shape, dtype)
    if size:
        ctypes.memmove(out.__array_interface__["data"][0], address, size)
    return out


_addressof = ctypes.addressof
_memory_of = ctypes.c_char.from_buffer


class NumpyFramework(Framework):
    """Access to the memory of NumPy arrays."""

    name = "numpy"

    def dense(self, tensor: Any) -> Any:
        """See Framework.dense(). TypeError for masked elements, which would count as all others."""
        if np.ma.is_masked(tensor):
            raise TypeError(
                "the mask of a numpy.ma.MaskedArray would be lost; call filled() with a value for its elements"
            )
        return np.asarray(tensor, order="C")

    def dense_in_place(self, tensor: Any) -> Any:
        """See Framework.dense_in_place(). TypeError for what is not an ndarray, ValueError if it is read-only."""
        if not isinstance(tensor, np.ndarray):
            raise TypeError(f"an in-place operation needs a numpy.ndarray, not {type(tensor).__name__}")
        if not tensor.flags.writeable:
            raise ValueError("an in-place operation needs a writable array; this one is read-only")
        return self.dense(tensor)

    def plain(self, tensor: Any, written: bool) -> Any:
        """See Framework.plain()."""
        if tensor.__class__ is not np.ndarray or not tensor.flags.c_contiguous:
            return None
        code = _CODE_OF.get(tensor.dtype)
        if code is None:
            return None
        try:  # a quarter of what __array_interface__ takes
            return _addressof(_memory_of(tensor)), tensor.shape, code
        except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype that Python does not know
            return None

    def view(self, tensor: Any, op: int = dtypes.COPY) -> Any:
        """See Framework.view()."""
        code, shape = code_and_shape(tensor.dtype, tensor.shape, op)
        return tensor.__array_interface__["data"][0], shape, code, _native.CPU_DEVICE, 0

    def address(self, tensor: Any) -> int:
        """See Framework.address()."""
        try:
            return _addressof(_memory_of(tensor))
        except (TypeError, ValueError, BufferError):
            return tensor.__array_interface__["data"][0]

    def empty_like(self, tensor: Any) -> Any:
        """See Framework.empty_like()."""
        return np.empty(tensor.shape, tensor.dtype)

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        """See Framework.from_native()."""
        return copy_of_memory(address, shape, dtype, like)

    def from_integers(self, values: Sequence[Any], like: Any) -> Any:
        """See Framework.from_integers()."""
        return np.array(values, dtype=np.int32)

    def assign(self, tensor: Any, source: Any) -> None:
        """See Framework.assign()."""
        tensor[...] = source
