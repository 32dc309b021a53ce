# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a gradient."""

import numpy as np

from hora.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class FP16Compressor(CastCompressor):
    wire_dtype = np.float16

    @staticmethod
    def is_floating(dtype):
        return np.dtype(dtype).kind == "f"

    @staticmethod
    def cast(tensor, dtype):
        return tensor.astype(dtype)


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
