# SPDX-License-Identifier: Apache-2.0
"""What travels instead of a tensor: the part that is the same for every framework."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Compressor:
    """compress() gives what is sent and what decompress() needs to undo it."""

    @staticmethod
    def compress(tensor: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """The tensor itself."""

    @staticmethod
    def compress(tensor: Any) -> Any:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
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
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> Any:
        dtype = tensor.dtype
        if not cls.is_wide_float(dtype):
            return tensor, None
        return cls.cast(tensor, cls.wire_dtype), dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
