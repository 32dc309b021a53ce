"""What travels instead of a gradient."""

import numpy as np


class NoneCompressor:
    """The array itself."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class FP16Compressor:
    """Floating arrays travel in 16 bits; others as they are."""

    @staticmethod
    def compress(tensor):
        dtype = np.dtype(tensor.dtype)
        if dtype.kind != "f" or dtype == np.float16:
            return tensor, None
        return tensor.astype(np.float16), dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
