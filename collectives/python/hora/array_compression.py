"""What travels instead of an array of NumPy or JAX."""


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
        if tensor.dtype.kind != "f" and tensor.dtype.name != "bfloat16":
            return tensor, None
        return tensor.astype("float16"), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
