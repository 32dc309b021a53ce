# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a gradient, for every backend of Keras."""

from __future__ import annotations

from hora.compression import CastCompressor, NoneCompressor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Cast(CastCompressor):
    """By Keras's own operations, so that no framework is imported for it."""

    @staticmethod
    def is_wide_float(dtype):
        # TensorFlow's dtypes have the plain name; of PyTorch's, str() has it after a prefix.
        return getattr(dtype, "name", str(dtype)).endswith(("float32", "float64"))

    @staticmethod
    def cast(tensor, dtype):
        import keras

        return keras.ops.cast(tensor, keras.backend.standardize_dtype(dtype))


class FP16Compressor(_Cast):
    """float32 and float64 travel as float16."""

    wire_dtype = "float16"


class BF16Compressor(_Cast):
    """float32 and float64 travel as bfloat16."""

    wire_dtype = "bfloat16"


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def compression_name(compression: Any) -> str:
    """ "none", "fp16" or "bf16": the choice of any framework's Compression."""
    if compression is None:
        return "none"
    if isinstance(compression, str):
        return compression
    name = getattr(compression, "__name__", type(compression).__name__).lower()
    for known in ("none", "fp16", "bf16"):
        if name.startswith(known):
            return known
    raise ValueError(
        f"compression={compression!r}: a custom Compressor works only with the "
        "TensorFlow backend; use Compression.none, fp16 or bf16"
    )
