# SPDX-License-Identifier: Apache-2.0
"""MXNet's NDArrays, as the runtime sees them."""

from __future__ import annotations

import ctypes

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from hora import _native, cuda_driver, device_arrays, dtypes
from hora.tensor_ops import Framework, TensorOps, byte_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_SUPPORTED = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
_CODE_OF = {np.dtype(name).type: dtypes.CODE_OF_NAME[name] for name in _SUPPORTED}
_DTYPE_OF = {code: dtype for dtype, code in _CODE_OF.items()}


def is_ndarray(value: Any) -> bool:
    """Whether the value is an mxnet.nd.NDArray."""
    return isinstance(value, mx.nd.NDArray)


def gpu_of(tensor: Any) -> int | None:
    """The CUDA device that an NDArray is on; None for the host. MXNet numbers devices as CUDA does."""
    context = tensor.context
    return context.device_id if context.device_type == "gpu" else None


class MxnetFramework(Framework):
    """NDArrays, read and written where they are. MXNet's engine works in the background, so reading memory waits for
    pending operations first; its streams on a GPU are its own, so results are done before they are given back."""

    name = "mxnet"

    def dense(self, tensor: Any) -> Any:
        """See Framework.dense(). TypeError for what is not an NDArray, ValueError if it is sparse."""
        if not is_ndarray(tensor):
            raise TypeError(f"expected an mxnet.nd.NDArray, not {type(tensor).__name__}")
        if tensor.stype != "default":
            raise ValueError(
                f"arrays of storage type {tensor.stype} cannot be communicated; call tostype('default') first"
            )
        if gpu_of(tensor) is not None and not device_arrays.wanted():
            return tensor.as_in_context(mx.cpu())
        return tensor

    def view(self, tensor: Any, op: int = dtypes.COPY) -> Any:
        """See Framework.view()."""
        code = _CODE_OF.get(np.dtype(tensor.dtype).type)
        if code is None:
            raise ValueError(f"arrays of dtype {tensor.dtype} cannot be communicated")
        gpu = gpu_of(tensor)
        return self.address(tensor), tensor.shape, code, _native.CPU_DEVICE if gpu is None else gpu, 0

    def address(self, tensor: Any) -> int:
        """See Framework.address(). Waits until MXNet has written the array."""
        tensor.wait_to_read()
        check_call(_LIB.MXNDArrayWaitToWrite(tensor.handle))
        pointer = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(pointer)))
        return pointer.value or 0

    def empty_like(self, tensor: Any) -> Any:
        """See Framework.empty_like()."""
        return mx.nd.empty(tensor.shape, ctx=tensor.context, dtype=tensor.dtype)

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: Any) -> Any:
        """See Framework.from_native(). ValueError for an empty result, which MXNet cannot hold."""
        if 0 in shape:
            raise ValueError("MXNet has no empty arrays: this rank would receive no rows")
        size = byte_count(shape, dtype)
        if device == _native.CPU_DEVICE:
            out = mx.nd.empty(shape, ctx=mx.cpu(), dtype=_DTYPE_OF[dtype])
            ctypes.memmove(self.address(out), address, size)
        else:
            out = mx.nd.empty(shape, ctx=like.context, dtype=_DTYPE_OF[dtype])
            cuda_driver.copy(device, self.address(out), address, size)
        return out

    def from_integers(self, values: Sequence[Any], like: Any) -> Any:
        """See Framework.from_integers()."""
        return mx.nd.array(values, ctx=mx.cpu(), dtype=np.int32)

    def assign(self, tensor: Any, source: Any) -> None:
        """See Framework.assign()."""
        source.copyto(tensor)

    def settler(self, device: int) -> Any:
        """See Framework.settler()."""
        return device_arrays.settler(device)


framework = MxnetFramework()
ops = TensorOps(framework)
