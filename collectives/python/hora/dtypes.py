# SPDX-License-Identifier: Apache-2.0
"""Element types of libhora, by code and by the name that NumPy, PyTorch and TensorFlow share."""

from __future__ import annotations

import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

UINT8 = 0
INT8 = 1
UINT16 = 2
INT16 = 3
INT32 = 4
INT64 = 5
FLOAT16 = 6
FLOAT32 = 7
FLOAT64 = 8
BOOL = 9
BFLOAT16 = 10

NAME_OF_CODE = {
    UINT8: "uint8",
    INT8: "int8",
    UINT16: "uint16",
    INT16: "int16",
    INT32: "int32",
    INT64: "int64",
    FLOAT16: "float16",
    FLOAT32: "float32",
    FLOAT64: "float64",
    BOOL: "bool",
    BFLOAT16: "bfloat16",
}
CODE_OF_NAME = {name: code for code, name in NAME_OF_CODE.items()}
SIZE_OF_CODE = (1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2)


def codes_of_torch(torch: Any) -> dict[Any, int]:
    """The codes of the dtypes of PyTorch that libhora knows, by dtype: not all releases have all of them."""
    of_name = {code: getattr(torch, name, None) for code, name in NAME_OF_CODE.items()}
    return {dtype: code for code, dtype in of_name.items() if isinstance(dtype, torch.dtype)}


#: The operation of what is only copied: broadcast, allgather and alltoall.
COPY = -1

_PARTS_OF_COMPLEX = {"complex32": FLOAT16, "complex64": FLOAT32, "complex128": FLOAT64}
_ADDING = (0, 1)  # Average and Sum


def substitute(name: str, size: int, shape: Sequence[int], op: int) -> tuple[int, tuple[int, ...]]:
    """(code, shape) as which elements of a type that libhora does not know travel: bytes where they are copied,
    pairs of floats where complex numbers are added. ValueError where neither will do. More dimensions of one
    element before and after these, as many as the type's name says, let the ranks notice that their types differ."""
    before, after = divmod(zlib.crc32(name.encode()) % 256, 16)
    if op == COPY:
        return UINT8, (*shape, *(1,) * before, size, *(1,) * after)
    if name not in _PARTS_OF_COMPLEX:
        raise ValueError(
            f"tensors of dtype {name} cannot be reduced, only copied (broadcast, allgather, alltoall); convert them to "
            "one of " + ", ".join(sorted(CODE_OF_NAME))
        )
    if op not in _ADDING:
        raise ValueError(f"tensors of dtype {name} can be reduced with Average and Sum only")
    return _PARTS_OF_COMPLEX[name], (*shape, *(1,) * before, 2, *(1,) * after)


def code_of(name: str) -> int:
    """The code of a dtype name ("float32"); TypeError for one that libhora does not carry."""
    try:
        return CODE_OF_NAME[name]
    except KeyError:
        raise TypeError(
            f"tensors of dtype {name} cannot be communicated; use one of " + ", ".join(sorted(CODE_OF_NAME))
        ) from None
