# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a tensor: the part that is the same for every framework."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def checked(compression: Any) -> Any:
    """The argument itself; TypeError for anything but a compression."""
    if not hasattr(compression, "compress"):
        raise TypeError(f"compression={compression!r}: expected one of Compression.none, .fp16, .bf16")
    return compression


class Compressor:
    """compress() gives what is sent and what decompress() needs to undo it."""

    @staticmethod
    def compress(tensor: Any) -> Any:
        """Returns (what to send, the context for decompress())."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor with its original dtype, from what was received and the context of compress()."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor itself."""

    @staticmethod
    def compress(tensor: Any) -> Any:
        """Returns (tensor, None)."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor itself."""
        return tensor


class CastCompressor(Compressor):
    """Floating tensors of more than two bytes travel as a type of two; others as they are. A framework's
    subclass says which dtypes those are, and how to cast."""

    wire_dtype: Any = None

    @staticmethod
    def is_wide_float(dtype: Any) -> bool:
        """Whether the dtype is of real floating-point numbers of more than two bytes."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor as a tensor of this dtype."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> Any:
        """Returns (tensor as wire_dtype, its dtype), or (tensor, None) if the dtype is not a wide float."""
        dtype = tensor.dtype
        if not cls.is_wide_float(dtype):
            return tensor, None
        return cls.cast(tensor, cls.wire_dtype), dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Casts back to the dtype of before compress()."""
        return tensor if ctx is None else cls.cast(tensor, ctx)
