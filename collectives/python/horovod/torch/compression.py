# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a gradient."""

import torch

from hora.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class _Cast(CastCompressor):
    @staticmethod
    def is_wide_float(dtype):
        return dtype in (torch.float32, torch.float64)

    @staticmethod
    def cast(tensor, dtype):
        return tensor.to(dtype)


class FP16Compressor(_Cast):
    """float32 and float64 travel as float16."""

    wire_dtype = torch.float16


class BF16Compressor(_Cast):
    """float32 and float64 travel as bfloat16."""

    wire_dtype = torch.bfloat16


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor  # Hora's own: the range of float32 in half the bytes
