"""What travels instead of a gradient."""

import torch


class Compressor:
    """compress() gives what is sent and what decompress() needs to undo it."""

    @staticmethod
    def compress(tensor):
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor itself."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _Cast(Compressor):
    """Floating tensors travel as a shorter type; others as they are."""

    wire_dtype = None

    @classmethod
    def compress(cls, tensor):
        if not tensor.dtype.is_floating_point or tensor.dtype == cls.wire_dtype:
            return tensor, None
        return tensor.to(cls.wire_dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    wire_dtype = torch.float16


class BF16Compressor(_Cast):
    wire_dtype = torch.bfloat16


class Compression:
    """The choices for compression=."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor  # Hora's own: the range of float32 in half the bytes
