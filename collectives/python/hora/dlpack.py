# SPDX-License-Identifier: Apache-2.0
"""Reads DLPack capsules (DLTensor and DLManagedTensorVersioned of dlpack.h), through ctypes: where the memory of
another library's tensor is, in the terms of libhora.

A capsule is not consumed here. It owns what it shows, and gives it back to its library when it goes, so memory
is valid as long as the View.
"""

from __future__ import annotations

import ctypes

from hora import dtypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CPU = 1
CUDA = 2
CUDA_HOST = 3
CUDA_MANAGED = 13

INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6  # DLDataTypeCode

_CODE_OF = {
    (UINT, 8): dtypes.UINT8,
    (INT, 8): dtypes.INT8,
    (UINT, 16): dtypes.UINT16,
    (INT, 16): dtypes.INT16,
    (INT, 32): dtypes.INT32,
    (INT, 64): dtypes.INT64,
    (FLOAT, 16): dtypes.FLOAT16,
    (FLOAT, 32): dtypes.FLOAT32,
    (FLOAT, 64): dtypes.FLOAT64,
    (BOOL, 8): dtypes.BOOL,
    (BFLOAT, 16): dtypes.BFLOAT16,
}


class DLDevice(ctypes.Structure):
    """DLPack's DLDevice: the kind of device and its ordinal."""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    """DLPack's DLDataType: kind of number, bits of one, numbers in a vector."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    """DLPack's DLTensor: address, device, shape, dtype, strides."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    """In a capsule named "dltensor"."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    """In a capsule named "dltensor_versioned"."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


# Own function objects: all code of the process shares the types of those in ctypes.pythonapi.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _tensor_in(capsule):
    """The DLTensor of a capsule that has not been consumed."""
    if _is_valid(capsule, b"dltensor"):
        return DLManagedTensor.from_address(_pointer(capsule, b"dltensor")).dl_tensor
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = DLManagedTensorVersioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:  # another major version may have another layout
            raise ValueError(f"a DLPack capsule of version {managed.major}.{managed.minor}: expected version 1")
        return managed.dl_tensor
    raise ValueError(f"expected a DLPack capsule that has not been consumed, not {capsule!r}")


def _is_dense(shape, strides):
    """Whether the elements are contiguous in row-major order. The strides of extents of 0 and 1 do not matter."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > 1 and stride != expected:
            return 0 in shape
        expected *= extent
    return True


class View:
    """What a capsule shows: address, shape, dtype code, the kind of device and its number."""

    __slots__ = ("address", "capsule", "code", "device_id", "device_type", "shape")

    def __init__(self, capsule: Any, dtype: str | None = None) -> None:
        """dtype is the library's own name for the type: some write bool as uint8."""
        tensor = _tensor_in(capsule)
        kind = tensor.dtype
        code = _CODE_OF.get((kind.code, kind.bits))
        if dtype is not None:
            code = dtypes.code_of(dtype)
            if dtypes.SIZE_OF_CODE[code] * 8 != kind.bits:
                raise ValueError(f"a DLPack capsule with elements of {kind.bits} bits for a tensor of dtype {dtype}")
        if code is None or kind.lanes != 1:
            raise TypeError(
                f"tensors of DLPack's type {kind.code} with {kind.bits} bits and {kind.lanes} lanes "
                "cannot be communicated"
            )
        self.shape: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        if tensor.ndim and tensor.strides and not _is_dense(self.shape, tensor.strides[: tensor.ndim]):
            raise ValueError(
                f"a tensor of shape {list(self.shape)} with strides {tensor.strides[: tensor.ndim]} "
                "is not contiguous in row-major order"
            )
        self.device_type = tensor.device.device_type
        self.device_id = tensor.device.device_id
        if self.device_type not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
            raise ValueError(
                f"tensors on DLPack's device {self.device_type} cannot be communicated: "
                "copy them to the CPU or to a CUDA device first"
            )
        self.code: int = code
        self.address: int = (tensor.data or 0) + tensor.byte_offset
        self.capsule = capsule

    @property
    def is_on_gpu(self) -> bool:
        """Whether the memory is that of a CUDA device."""
        return self.device_type in (CUDA, CUDA_MANAGED)
