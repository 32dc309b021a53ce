# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a gradient."""

import tensorflow as tf

from hora.compression import CastCompressor, Compressor, NoneCompressor  # noqa: F401


class _Cast(CastCompressor):
    @staticmethod
    def is_wide_float(dtype):
        return dtype in (tf.float32, tf.float64)

    @staticmethod
    def cast(tensor, dtype):
        return tf.cast(tensor, dtype)


class FP16Compressor(_Cast):
    """float32 and float64 travel as float16."""

    wire_dtype = tf.float16


class BF16Compressor(_Cast):
    """float32 and float64 travel as bfloat16."""

    wire_dtype = tf.bfloat16


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor  # Hora's own: the range of float32 in half the bytes
