# SPDX-License-Identifier: Apache-2.0
"""Tensors in GPU memory of frameworks that have no streams of ours (TensorFlow, JAX), read in place through DLPack.

Such a framework works on streams that other code cannot know. So a tensor is ready before an operation on it starts
(its Source says how), and the operation is done on the GPU before its result is given back. Results lie in memory
of the framework: most take almost all of the GPU's for their own allocator.
"""

from __future__ import annotations

import ctypes
import functools
import os

from hora import _native, cuda_driver, dlpack, dtypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def wanted() -> bool:
    """Whether tensors in GPU memory stay there; HORA_GPU_TENSORS=host lets them go through host memory."""
    setting = os.environ.get("HORA_GPU_TENSORS", "device")
    if setting not in ("device", "host"):
        raise ValueError(f"HORA_GPU_TENSORS={setting}: expected device or host")
    return setting == "device"


class Source:
    """What a framework does with its tensors."""

    def export(self, tensor: Any) -> Any:
        """A DLPack capsule of the tensor, once no work of the framework on it is left."""
        raise NotImplementedError

    def dtype_name(self, tensor: Any) -> str:
        """The name of the tensor's dtype, as NumPy spells it (float32, bfloat16)."""
        raise NotImplementedError

    def fresh(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        """A tensor with memory that no other tensor shares, on the device of `like`; any values."""
        raise NotImplementedError


_ordinals: dict[int, int] = {}  # the number of a device in a framework -> in this process, as last seen


class DeviceArray:
    """A tensor of a framework, and where its memory is."""

    __slots__ = ("_view", "device", "source", "tensor")

    def __init__(self, tensor: Any, source: Source) -> None:
        self.tensor = tensor
        self.source = source
        self._view = view = dlpack.View(source.export(tensor), source.dtype_name(tensor))
        self.device = _native.CPU_DEVICE
        if view.is_on_gpu:
            if view.address:
                _ordinals[view.device_id] = cuda_driver.device_of(view.address)
            self.device = _ordinals.get(view.device_id, view.device_id)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the tensor."""
        return self._view.shape

    @property
    def address(self) -> int:
        """Where the tensor's memory begins on the GPU."""
        return self._view.address

    def where(self) -> tuple[int, tuple[int, ...], int, int, int]:
        """As Framework.view(), on the default stream."""
        view = self._view
        return view.address, view.shape, view.code, self.device, 0

    def tolist(self) -> list[Any]:
        """The values on the host, as NumPy's."""
        return self.tensor.__array__().tolist()

    def another(self, shape: Sequence[int] | None = None, code: int | None = None) -> DeviceArray:
        """A new array of the same framework and device, of the same shape and dtype by default."""
        view = self._view
        name = dtypes.NAME_OF_CODE[view.code if code is None else code]
        made = DeviceArray(self.source.fresh(view.shape if shape is None else shape, name, self.tensor), self.source)
        if made.device != self.device:
            raise RuntimeError(
                f"a result of dtype {name} came to be on device {made.device}, not {self.device}; "
                "HORA_GPU_TENSORS=host avoids this"
            )
        return made

    def fill_from(self, address: int, size: int) -> None:
        """Copies memory on the same device into this array."""
        if size and self.device == _native.CPU_DEVICE:
            ctypes.memmove(self.address, address, size)
        elif size:
            cuda_driver.copy(self.device, self.address, address, size)


def settler(device: int) -> Callable[[], None]:
    """What waits until the operations that are done in the runtime's eyes are done on the GPU."""
    return functools.partial(cuda_driver.synchronize, device)
