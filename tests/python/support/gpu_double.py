# SPDX-License-Identifier: Apache-2.0
"""A double of torch.cuda for machines without a GPU, on the double of the CUDA driver that lies in
tests/support/gpu_double: tensors in its memory that say they are on this rank's device, and its streams.

What runs on a stream is what run() puts there; PyTorch's own operations happen at once, in the
host's memory. Memory without an owner is overwritten, so that code that still reads it reads rubbish.
"""

import contextlib
import ctypes
import os

import torch

# Each rank its own, as far as there are some.
DEVICE = torch.device(
    "cuda", int(os.environ.get("HOROVOD_LOCAL_RANK", 0)) % int(os.environ.get("HORA_DOUBLE_DEVICES", 1))
)
RUBBISH = 0xEE

_driver = ctypes.CDLL("libcuda.so.1")
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_blocks = {}  # address -> bytes, of all the memory that was ever taken
_functions = []  # what streams may still call


def _call(name, *arguments):
    status = getattr(_driver, name)(*arguments)
    assert status == 0, (name, status)


def open_device():
    context = ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), DEVICE.index)
    _call("cuCtxPushCurrent_v2", context)


class Stream:
    """What the product asks of torch.cuda.Stream, and run()."""

    def __init__(self, default=False):
        handle = ctypes.c_void_p()
        if not default:
            _call("cuStreamCreateWithPriority", ctypes.byref(handle), 0, 0)
        self.cuda_stream = handle.value or 0

    def synchronize(self):
        _call("cuStreamSynchronize", ctypes.c_void_p(self.cuda_stream))

    def run(self, function):
        """The stream calls the function when it comes to it."""
        host_function = _HostFunction(lambda _: function())
        _functions.append(host_function)
        _call("cuLaunchHostFunc", ctypes.c_void_p(self.cuda_stream), host_function, None)


_current = [Stream(default=True)]


@contextlib.contextmanager
def current(stream):
    """Like torch.cuda.stream()."""
    _current.append(stream)
    try:
        yield
    finally:
        _current.pop()


def _take(size):
    """A buffer in the driver's memory, which is overwritten once it has no owner any more."""
    place = ctypes.c_uint64()
    _call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
    address, overwrite = place.value, ctypes.memset
    _blocks[address] = size
    kind = type("Memory", (ctypes.c_char * size,), {"__del__": lambda self: overwrite(address, RUBBISH, size) and None})
    return kind.from_address(address)


def _on_device(tensor):
    start = tensor.data_ptr()
    return tensor.numel() == 0 or any(address <= start < address + size for address, size in _blocks.items())


class DeviceTensor(torch.Tensor):
    """A tensor that says it is on the GPU."""

    device = DEVICE
    is_cuda = True

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        result = super().__torch_function__(function, types, arguments, named or {})
        if isinstance(result, torch.Tensor) and not _on_device(result):
            return on_device(result.as_subclass(torch.Tensor))
        return result


def on_device(tensor):
    """A copy of a dense tensor in the memory of the double."""
    with torch._C.DisableTorchFunction():
        tensor = tensor.detach().contiguous()
        if tensor.numel() == 0:
            return tensor.clone().as_subclass(DeviceTensor)
        memory = _take(tensor.numel() * tensor.element_size())
        copy = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
        copy.copy_(tensor)
        return copy.as_subclass(DeviceTensor)


def on_host(tensor):
    """A copy for the host, of what is there now."""
    with torch._C.DisableTorchFunction():
        return tensor.detach().as_subclass(torch.Tensor).clone()


def _made_here(make):
    """torch.empty or torch.tensor, with device=cuda answered by the double."""

    def made(*arguments, device=None, **named):
        result = make(*arguments, **named)
        wanted = torch.device(device) if device is not None else torch.device("cpu")
        return on_device(result) if wanted.type == "cuda" else result

    return made


def _as_tensor(as_tensor):
    def wrapped(data, *arguments, device=None, **named):
        interface = getattr(data, "__cuda_array_interface__", None)
        if interface is None:
            return as_tensor(data, *arguments, device=device, **named)
        (address, _), (size,) = interface["data"], interface["shape"]
        assert interface["typestr"] == "|u1" and interface["stream"] == (_current[-1].cuda_stream or 1), interface
        return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)

    return wrapped


def install():
    """For the rest of the process."""
    open_device()
    torch.cuda.current_stream = lambda device=None: _current[-1]
    torch.empty, torch.tensor = _made_here(torch.empty), _made_here(torch.tensor)
    torch.as_tensor = _as_tensor(torch.as_tensor)
