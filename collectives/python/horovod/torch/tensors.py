# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors, as the runtime sees them."""

from __future__ import annotations

import ctypes

import torch

from hora import _native, dtypes, huge_pages, serialization
from hora.tensor_ops import Framework, TensorOps, byte_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_CODE_OF = dtypes.codes_of_torch(torch)
_CPU = _native.CPU_DEVICE
_STRIDED = torch.strided
_CPU_DEVICE = torch.device("cpu")


# PyTorch 1.10 brought tensors whose memory holds the negative or the conjugate of their values.
_HAS_NEG_VIEWS = hasattr(torch.Tensor, "is_neg")
# Automatic differentiation makes tensors of zeros without memory, from PyTorch 1.11 on.
_HAS_ZERO_TENSORS = hasattr(torch.Tensor, "_is_zerotensor")


def _with_own_values(tensor):
    """The tensor, or one whose memory holds its values."""
    if _HAS_NEG_VIEWS and (tensor.is_neg() or tensor.is_conj()):
        return tensor.resolve_conj().resolve_neg()
    return tensor.clone() if _HAS_ZERO_TENSORS and tensor._is_zerotensor() else tensor


_PICKLED = {dtype for dtype, code in _CODE_OF.items() if code != dtypes.UINT16} | {torch.complex64, torch.complex128}


def _from_bytes(data, dtype, shape, requires_grad):
    return data.view(dtype).reshape(shape).requires_grad_(requires_grad)


def _reduce_tensor(tensor):
    """For pickle: releases up to 2.15 and maybe later write tensors of new types (unsigned, float8) and cannot read
    them, none writes tensors of zeros without memory, and 1.13 loses signs."""
    if tensor.is_quantized or tensor.layout is not _STRIDED or getattr(tensor, "is_nested", False):
        return tensor.__reduce_ex__(2)
    tensor = _with_own_values(tensor)
    if tensor.dtype in _PICKLED:
        return tensor.__reduce_ex__(2)
    data = tensor.detach().reshape(-1).view(torch.uint8)
    return _from_bytes, (data, tensor.dtype, tuple(tensor.shape), tensor.requires_grad)


serialization.reducers[torch.Tensor] = _reduce_tensor


class _CudaMemory:
    """Memory on a GPU that the library allocated, in the form that torch.as_tensor reads."""

    def __init__(self, address, byte_size, stream):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (byte_size,),
            "typestr": "|u1",
            "version": 3,
            "stream": stream or 1,
        }


class TorchFramework(Framework):
    """Access to the memory of PyTorch tensors."""

    name = "torch"

    def dense(self, tensor: torch.Tensor) -> Any:
        """See Framework.dense(). TypeError for what is not a tensor, ValueError if it is sparse or nested."""
        try:
            layout = tensor.layout
        except AttributeError:
            raise TypeError(f"expected a torch.Tensor, not {type(tensor).__name__}") from None
        if getattr(tensor, "is_nested", False):
            raise ValueError("this operation needs a dense tensor, not a nested one; pass its values()")
        if layout is not _STRIDED:
            raise ValueError(
                "this operation needs a dense tensor, not a sparse one; call "
                "to_dense() first, or use sparse_allreduce_async"
                if str(layout).startswith("torch.sparse")
                else f"this operation needs a dense tensor, not one of layout {layout}; call to_dense() first"
            )
        own = _with_own_values(tensor)
        return own if own is tensor and own.is_contiguous() else own.detach().contiguous()

    dense_in_place = dense  # torch itself refuses to write where it must not

    def plain(self, tensor: torch.Tensor, written: bool) -> Any:
        """See Framework.plain()."""
        try:
            if (
                tensor.layout is not _STRIDED
                or tensor.device != _CPU_DEVICE
                or not tensor.is_contiguous()
                or (_HAS_NEG_VIEWS and tensor.is_neg())
            ):
                return None
            address = tensor.data_ptr()
            return (address, tensor.shape, _CODE_OF[tensor.dtype]) if address else None
        except (AttributeError, KeyError, RuntimeError):  # RuntimeError: nested, or traced by torch.func
            return None

    def view(self, tensor: torch.Tensor, op: int = dtypes.COPY) -> Any:
        """See Framework.view(). ValueError for quantized tensors, for tensors without memory of their own, and for
        devices other than CPU and CUDA."""
        shape: Sequence[int] = tensor.shape
        code = _CODE_OF.get(tensor.dtype)
        if code is None:
            if tensor.is_quantized:
                raise ValueError(f"tensors of dtype {tensor.dtype} cannot be communicated: call dequantize() first")
            name = str(tensor.dtype).partition(".")[2]
            code, shape = dtypes.substitute(name, tensor.element_size(), shape, op)
        device = tensor.device
        if device == _CPU_DEVICE:
            address = tensor.data_ptr()
            if not address and tensor.numel():
                raise ValueError(
                    f"a {type(tensor).__name__} without memory of its own cannot be communicated: pass the tensors "
                    "that it is made of (of a DTensor to_local())"
                )
            return address, shape, code, _CPU, 0
        if device.type != "cuda":
            raise ValueError(
                f"tensors on device {device} cannot be communicated: copy them to the CPU or to a CUDA device first"
            )
        stream = torch.cuda.current_stream(device).cuda_stream
        return tensor.data_ptr(), shape, code, device.index, stream

    def address(self, tensor: torch.Tensor) -> int:
        """See Framework.address()."""
        return tensor.data_ptr()

    def empty_like(self, tensor: torch.Tensor) -> Any:
        """See Framework.empty_like()."""
        out = torch.empty_like(tensor)
        size = out.numel() * out.element_size()
        if size >= huge_pages.LEAST_BYTES and out.device == _CPU_DEVICE:
            huge_pages.advise(out.data_ptr(), size)
        return out

    def from_native(self, address: int, shape: Sequence[int], dtype: Any, device: int, like: torch.Tensor) -> Any:
        """See Framework.from_native()."""
        size = byte_count(shape, dtype)
        shape = shape[: like.dim()]
        if device == _CPU:
            out = torch.empty(shape, dtype=like.dtype, device=_CPU_DEVICE)
            if size:
                ctypes.memmove(out.data_ptr(), address, size)
            return out
        out = torch.empty(shape, dtype=like.dtype, device=torch.device("cuda", device))
        if size:
            stream = torch.cuda.current_stream(device)
            memory = _CudaMemory(address, size, stream.cuda_stream)
            source = torch.as_tensor(memory, device=out.device).view(out.dtype)
            out.view(-1).copy_(source)
            stream.synchronize()  # the library's memory dies with the handle
        return out

    def from_integers(self, values: Sequence[Any], like: torch.Tensor) -> Any:
        """See Framework.from_integers()."""
        return torch.tensor(values, dtype=torch.int32, device=like.device)

    def assign(self, tensor: torch.Tensor, source: Any) -> None:
        """See Framework.assign()."""
        with torch.no_grad():
            tensor.copy_(source)


framework = TorchFramework()
ops = TensorOps(framework)
