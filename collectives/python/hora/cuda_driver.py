# SPDX-License-Identifier: Apache-2.0
"""The few calls of the CUDA driver that tensors of a framework without streams of ours need, through ctypes. The
driver is loaded by the first call; a process that has tensors on a GPU has it already."""

from __future__ import annotations

import contextlib
import ctypes
import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


@functools.lru_cache(maxsize=None)
def _driver():
    driver = ctypes.CDLL("libcuda.so.1")
    status = driver.cuInit(0)
    if status:
        raise RuntimeError(f"cuInit failed: {_text_of(driver, status)}")
    return driver


def _text_of(driver, status):
    text = ctypes.c_char_p()
    driver.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"CUDA error %d" % status).decode()


def _call(name: str, *arguments: Any) -> None:
    driver = _driver()
    status = getattr(driver, name)(*arguments)
    if status:
        raise RuntimeError(f"{name} failed: {_text_of(driver, status)}")


@functools.lru_cache(maxsize=None)
def _context(device):
    """The primary context, in which frameworks and libhora have their memory; kept from the first use on."""
    context = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
    return context


@contextlib.contextmanager
def _current(device: int) -> Iterator[None]:
    _call("cuCtxPushCurrent_v2", _context(device))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def device_of(address: int) -> int:
    """The device that memory is on. Frameworks number only the devices that they may use."""
    ordinal = ctypes.c_int()
    _call("cuPointerGetAttribute", ctypes.byref(ordinal), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_uint64(address))
    return ordinal.value


def synchronize(device: int) -> None:
    """Returns when the work on the default stream of the device is done."""
    with _current(device):
        _call("cuStreamSynchronize", None)


def copy(device: int, to: int, source: int, size: int) -> None:
    """Copies memory on the device, and returns when that is done."""
    with _current(device):
        _call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), None)
        _call("cuStreamSynchronize", None)
