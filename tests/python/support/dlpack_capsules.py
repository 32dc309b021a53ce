# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules of any memory, as a library makes them: fabricated, so that tests can say what is in them."""

import ctypes

from hora import dlpack

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
# The destructor of a capsule gets an object that is being destroyed: as an address, not as an object.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))

_living = {}  # address of a managed tensor -> what it needs, and what to call at its end
_USED = ctypes.c_char_p(b"used_dltensor")
_NAMES = {False: ctypes.c_char_p(b"dltensor"), True: ctypes.c_char_p(b"dltensor_versioned")}


@_Deleter
def _delete(address):
    *_, ended = _living.pop(address)
    ended()


@_Destructor
def _destroy(capsule):
    """A capsule that was not consumed ends its tensor."""
    for versioned, name in _NAMES.items():
        if _is_valid(capsule, name):
            kind = dlpack.DLManagedTensorVersioned if versioned else dlpack.DLManagedTensor
            _Deleter(kind.from_address(_pointer(capsule, name)).deleter)(_pointer(capsule, name))


def capsule(
    address,
    shape,
    kind=(dlpack.FLOAT, 32),
    device=(dlpack.CUDA, 0),
    strides=None,
    offset=0,
    lanes=1,
    version=None,
    ended=lambda: None,
):
    """A capsule of that memory; ended() is called when it has no owner any more."""
    managed = dlpack.DLManagedTensor() if version is None else dlpack.DLManagedTensorVersioned(*version)
    extents = (ctypes.c_int64 * len(shape))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
    tensor = managed.dl_tensor
    tensor.data, tensor.byte_offset = address, offset
    tensor.device = dlpack.DLDevice(*device)
    tensor.ndim, tensor.dtype = len(shape), dlpack.DLDataType(*kind, lanes)
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    if steps is not None:
        tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    place = ctypes.addressof(managed)
    _living[place] = (managed, extents, steps, ended)
    return _new(place, _NAMES[version is not None], ctypes.cast(_destroy, ctypes.c_void_p))


def consume(made):
    """Takes the tensor out of a capsule, as from_dlpack() does; returns the function that ends it."""
    place = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(made, b"dltensor")
    _set_name(made, _USED)
    return lambda: _delete(place)


def count():
    """Of the tensors that live."""
    return len(_living)
