# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a tensor: the part that is the same for every framework."""


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


class CastCompressor(Compressor):
    """Floating tensors travel as a shorter type; others as they are. A framework's subclass says
    which dtypes are floating, and how to cast."""

    wire_dtype = None

    @staticmethod
    def is_floating(dtype):
        raise NotImplementedError

    @staticmethod
    def cast(tensor, dtype):
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor):
        dtype = tensor.dtype
        if not cls.is_floating(dtype) or dtype == cls.wire_dtype:
            return tensor, None
        return cls.cast(tensor, cls.wire_dtype), dtype

    @classmethod
    def decompress(cls, tensor, ctx):
        return tensor if ctx is None else cls.cast(tensor, ctx)
