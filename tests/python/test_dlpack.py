# SPDX-License-Identifier: Apache-2.0
"""The reader of DLPack capsules: fabricated ones, and those of NumPy."""

import ctypes
import sys

import pytest

from support import job

sys.path.insert(0, str(job.PACKAGES))

from hora import dlpack, dtypes
from support import dlpack_capsules
from support.dlpack_capsules import capsule

np = pytest.importorskip("numpy")


def test_a_tensor_on_a_gpu():
    view = dlpack.View(capsule(0x1000, (2, 3), device=(dlpack.CUDA, 5), strides=(3, 1), offset=0x20))
    assert (view.address, view.shape, view.code, view.device_id) == (0x1020, (2, 3), dtypes.FLOAT32, 5)
    assert view.is_on_gpu


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
def test_memory_is_given_back_once(version):
    ended = []
    view = dlpack.View(capsule(0x1000, (4,), version=version, ended=lambda: ended.append(1)))
    assert view.shape == (4,) and not ended
    del view
    assert ended == [1] and dlpack_capsules.count() == 0


def test_a_consumed_capsule_is_refused():
    made = capsule(0x1000, (4,))
    end = dlpack_capsules.consume(made)
    with pytest.raises(ValueError, match="has not been consumed"):
        dlpack.View(made)
    end()
    with pytest.raises(ValueError, match="has not been consumed"):
        dlpack.View("no capsule")


def test_another_major_version_is_refused():
    with pytest.raises(ValueError, match=r"version 2\.0"):
        dlpack.View(capsule(0x1000, (4,), version=(2, 0)))
    assert dlpack_capsules.count() == 0


@pytest.mark.parametrize(
    "shape, strides, dense",
    [
        ((2, 3), None, True),
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((2, 3), (6, 1), False),
        ((4,), (2,), False),
        ((4,), (-1,), False),
        ((1, 4), (77, 1), True),
        ((4, 1), (1, 0), True),
        ((0, 3), (1, 9), True),
        ((), None, True),
        ((2, 2), (0, 1), False),
    ],
)
def test_strides(shape, strides, dense):
    made = capsule(0x1000, shape, strides=strides)
    if dense:
        assert dlpack.View(made).shape == shape
    else:
        with pytest.raises(ValueError, match="not contiguous"):
            dlpack.View(made)


@pytest.mark.parametrize(
    "kind, name",
    [
        ((dlpack.UINT, 8), "uint8"),
        ((dlpack.INT, 8), "int8"),
        ((dlpack.UINT, 16), "uint16"),
        ((dlpack.INT, 16), "int16"),
        ((dlpack.INT, 32), "int32"),
        ((dlpack.INT, 64), "int64"),
        ((dlpack.FLOAT, 16), "float16"),
        ((dlpack.FLOAT, 32), "float32"),
        ((dlpack.FLOAT, 64), "float64"),
        ((dlpack.BOOL, 8), "bool"),
        ((dlpack.BFLOAT, 16), "bfloat16"),
    ],
)
def test_types(kind, name):
    assert dlpack.View(capsule(0x1000, (4,), kind=kind)).code == dtypes.CODE_OF_NAME[name]
    assert dlpack.View(capsule(0x1000, (4,), kind=kind), name).code == dtypes.CODE_OF_NAME[name]


def test_bool_that_travels_as_uint8():
    assert dlpack.View(capsule(0x1000, (4,), kind=(dlpack.UINT, 8)), "bool").code == dtypes.BOOL


@pytest.mark.parametrize("more", [dict(kind=(dlpack.UINT, 32)), dict(kind=(5, 64)), dict(lanes=4)])
def test_types_that_cannot_travel(more):
    with pytest.raises(TypeError, match="cannot be communicated"):
        dlpack.View(capsule(0x1000, (4,), **more))


def test_a_type_of_another_size():
    with pytest.raises(ValueError, match="64 bits for a tensor of dtype float32"):
        dlpack.View(capsule(0x1000, (4,), kind=(dlpack.FLOAT, 64)), "float32")


@pytest.mark.parametrize("device", [7, 10])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match=f"DLPack's device {device}"):
        dlpack.View(capsule(0x1000, (4,), device=(device, 0)))


@pytest.mark.parametrize("device, on_gpu", [(1, False), (2, True), (3, False), (13, True)])
def test_which_memory_is_on_the_gpu(device, on_gpu):
    assert dlpack.View(capsule(0x1000, (4,), device=(device, 0))).is_on_gpu == on_gpu


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "float64"])
def test_numpy(dtype):
    if not hasattr(np.ndarray, "__dlpack__"):
        pytest.skip("NumPy exchanges nothing by DLPack before 1.22")
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)[1]
    view = dlpack.View(array.__dlpack__())
    assert (view.address, view.shape) == (array.__array_interface__["data"][0], (3, 4))
    assert view.code == dtypes.CODE_OF_NAME[dtype] and not view.is_on_gpu
    assert bytes((ctypes.c_char * array.nbytes).from_address(view.address)) == array.tobytes()
    with pytest.raises(ValueError, match="not contiguous"):
        dlpack.View(array.T.__dlpack__())
