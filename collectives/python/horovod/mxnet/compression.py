# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a gradient."""

from __future__ import annotations

import numpy as np

from hora.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class FP16Compressor(CastCompressor):
    """float32 and float64 travel as float16."""

    wire_dtype = np.float16

    @staticmethod
    def is_wide_float(dtype: Any) -> bool:
        """Whether the dtype is float32 or float64."""
        return dtype in (np.float32, np.float64)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The array as an array of this dtype."""
        return tensor.astype(dtype)


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
