# SPDX-License-Identifier: Apache-2.0
"""Element types of libhora, by code and by the name that NumPy, PyTorch and TensorFlow share."""

from __future__ import annotations

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

#: Codes that can be averaged without losing a fraction, and that have gradients.
FLOATING = frozenset((FLOAT16, FLOAT32, FLOAT64, BFLOAT16))


def code_of(name: str) -> int:
    """The code of a dtype name ("float32"); TypeError for one that libhora does not carry."""
    try:
        return CODE_OF_NAME[name]
    except KeyError:
        raise TypeError(
            f"tensors of dtype {name} cannot be communicated; use one of " + ", ".join(sorted(CODE_OF_NAME))
        ) from None
