# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays."""

import numpy as np

import hora.numpy as hvd
from hora.exceptions import TensorMismatchError
from support.expect import close, raises

DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"]


def check_allreduce():
    ranks = np.arange(1, hvd.size() + 1)
    for dtype in DTYPES:
        mine = np.full((3, 2), hvd.rank() + 1, dtype)
        for op, expected in ((hvd.Sum, ranks.sum()), (hvd.Max, ranks.max()), (hvd.Min, 1), (hvd.Product, ranks.prod())):
            result = hvd.allreduce(mine, op=op)
            assert result.dtype == mine.dtype and result.shape == mine.shape
            close(result, np.full((3, 2), expected))
    close(hvd.allreduce(np.float64(hvd.rank() + 1)), ranks.mean())
    close(hvd.allreduce([1.0, 2.0], op=hvd.Sum), [hvd.size(), 2 * hvd.size()])
    close(hvd.allreduce(np.array([True, hvd.rank() == 0]), op=hvd.Sum), [True, True])
    close(hvd.allreduce(np.ones(2), op=hvd.Sum, prescale_factor=3, postscale_factor=0.5), np.full(2, 1.5 * hvd.size()))
    close(hvd.allreduce(np.ones(2), average=False), np.full(2, hvd.size()))
    raises(ValueError, hvd.allreduce, np.ones(2), average=True, op=hvd.Sum)


def check_dtypes_that_are_only_copied():
    """Complex numbers are added, too."""
    for dtype in (
        "complex64",
        "complex128",
        "uint32",
        "uint64",
        "datetime64[s]",
        "S3",
        ">f4",
        [("a", "i4"), ("b", "f8")],
    ):
        own = np.arange(6).astype("u1").view("u1").repeat(np.dtype(dtype).itemsize).view(dtype)
        own = own if hvd.rank() == 0 else np.zeros_like(own)
        first = np.arange(6).astype("u1").repeat(np.dtype(dtype).itemsize).view(dtype)
        for result in (hvd.broadcast(own, 0), hvd.allgather(own)[:6]):
            assert result.dtype == first.dtype and result.tobytes() == first.tobytes(), dtype
        assert hvd.alltoall(own.repeat(hvd.size()))[:6].dtype == first.dtype
        raises((ValueError, TypeError), hvd.allreduce, own, op=hvd.Max)
    complex_numbers = np.array([1 + 2j, -3j], np.complex64)
    result = hvd.allreduce(complex_numbers, op=hvd.Sum)
    assert result.dtype == np.complex64 and np.array_equal(result, complex_numbers * hvd.size())
    assert np.allclose(hvd.allreduce(complex_numbers, op=hvd.Average), complex_numbers)
    raises(ValueError, hvd.allreduce, np.ones(2, np.uint32))
    assert "broadcast_object" in str(raises(TypeError, hvd.broadcast, np.array([None]), 0))


def check_ranks_with_different_types_of_one_size():
    for mine, theirs in (
        ("datetime64[s]", "datetime64[ms]"),
        ("uint64", "complex64"),
        ([("a", "i4"), ("b", "i4")], [("a", "i4"), ("b", "f4")]),
        ([("a", ">i4")], [("a", ">f4")]),
    ):
        own = np.zeros(2, mine if hvd.rank() else theirs)
        if hvd.size() == 1:
            assert hvd.allgather(own).dtype == own.dtype
        else:
            raises(TensorMismatchError, hvd.allgather, own, name="gathered")
            raises(TensorMismatchError, hvd.broadcast, own, 0, name="sent")


def check_averages_and_extremes_of_awkward_numbers():
    for dtype in DTYPES:
        if dtype in ("float32", "float64"):
            continue
        info = (np.finfo if dtype.startswith("float") else np.iinfo)(dtype)
        own = np.array([info.max, info.min], dtype)
        assert np.array_equal(hvd.allreduce(own, op=hvd.Average), own), dtype
    for dtype in ("float16", "float32", "float64"):
        own = np.ones(65, dtype)
        own[hvd.rank() :: hvd.size() + 1] = np.nan
        for op in (hvd.Min, hvd.Max):
            kept = np.arange(65) % (hvd.size() + 1) != hvd.size()
            assert np.array_equal(np.isnan(hvd.allreduce(own, op=op)), kept), (dtype, op)


def check_in_place_and_layout():
    base = np.arange(24.0).reshape(4, 6)
    array = base.copy()
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    close(array, base * hvd.size())
    array = base.copy()
    hvd.allreduce_(array[:, ::2], op=hvd.Sum)
    close(array[:, ::2], base[:, ::2] * hvd.size())
    close(array[:, 1::2], base[:, 1::2])
    close(hvd.allreduce(base.T, op=hvd.Sum), base.T * hvd.size())
    fortran = np.asfortranarray(base)
    hvd.allreduce_(fortran, op=hvd.Sum)
    close(fortran, base * hvd.size())
    scalar = np.array(2.0)
    hvd.allreduce_(scalar, op=hvd.Sum)
    assert scalar.shape == () and scalar == 2.0 * hvd.size()
    handle = hvd.allreduce_async_(array, op=hvd.Average, name="again")
    assert hvd.synchronize(handle) is array


def check_async_and_groups():
    handles = [hvd.allreduce_async(np.full(5, float(i)), name=f"a{i}", op=hvd.Sum) for i in range(20)]
    for i, handle in enumerate(handles):
        while not hvd.poll(handle):
            pass
        close(hvd.synchronize(handle), np.full(5, i * hvd.size()))
    parts = [np.ones(3), np.arange(4)]
    for result, part in zip(hvd.grouped_allreduce(parts, op=hvd.Sum), parts):
        close(result, part * hvd.size())
    for result, part in zip(hvd.synchronize(hvd.grouped_allreduce_async(parts, op=hvd.Sum)), parts):
        close(result, part * hvd.size())
    copies = [part.copy() for part in parts]
    hvd.grouped_allreduce_(copies, op=hvd.Sum)
    close(copies[1], parts[1] * hvd.size())
    both = hvd.grouped_allgather([np.full(1, hvd.rank()), np.zeros((2, 2))])
    close(both[0], np.arange(hvd.size()))
    assert both[1].shape == (2 * hvd.size(), 2)
    close(hvd.synchronize(hvd.grouped_allgather_async([np.full(1, hvd.rank())]))[0], np.arange(hvd.size()))


def check_allgather_broadcast():
    mine = np.full((hvd.rank(), 2), hvd.rank())
    expected = np.concatenate([np.full((r, 2), r) for r in range(hvd.size())])
    close(hvd.allgather(mine), expected)
    close(hvd.synchronize(hvd.allgather_async(mine)), expected)
    for root in range(hvd.size()):
        close(hvd.broadcast(np.array([hvd.rank()]), root), [root])
        array = np.array([hvd.rank()])
        hvd.broadcast_(array, root)
        close(array, [root])
        close(hvd.synchronize(hvd.broadcast_async(array + 1, root)), [root + 1])
        hvd.synchronize(hvd.broadcast_async_(array, root))


def check_alltoall_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    close(hvd.alltoall(np.arange(size) + 10 * rank), np.arange(size) * 10 + rank)
    received, splits = hvd.alltoall(np.full(size * 2, rank), splits=np.full(size, 2))
    close(received, np.repeat(np.arange(size), 2))
    assert splits.dtype == np.int32 and splits.tolist() == [2] * size
    handle = hvd.alltoall_async(np.arange(size), splits=[1] * size)
    close(hvd.synchronize(handle)[0], np.full(size, rank))
    close(hvd.reducescatter(np.arange(size, dtype=float), op=hvd.Sum), [rank * size])
    close(hvd.reducescatter(np.arange(size, dtype=float)), [rank])
    close(hvd.synchronize(hvd.reducescatter_async(np.ones(size), op=hvd.Sum)), [size])
    close(hvd.grouped_reducescatter([np.ones(size)], op=hvd.Sum)[0], [size])
    close(hvd.synchronize(hvd.grouped_reducescatter_async([np.ones(size)], op=hvd.Sum))[0], [size])


def check_unsupported():
    raises(TypeError, hvd.allreduce, np.array(["text"]))
    raises(ValueError, hvd.allreduce, np.ones(2, dtype=complex), op=hvd.Product)
    raises(TypeError, hvd.allreduce, np.ones(2, dtype=np.dtype(np.float32).newbyteorder()))
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for function in (hvd.allreduce, hvd.allreduce_, hvd.allgather):
        assert "filled()" in str(raises(TypeError, function, masked))
    close(hvd.allreduce(np.ma.array([1.0, 2.0]), op=hvd.Sum), np.array([1.0, 2.0]) * hvd.size())


def check_what_cannot_be_written_to():
    array = np.ones(3)
    array.flags.writeable = False
    assert hvd.allreduce(array, op=hvd.Sum).tolist() == [hvd.size()] * 3
    for function in (hvd.allreduce_, hvd.allreduce_async_):
        raises(ValueError, function, array)
        raises(TypeError, function, [1.0])
    raises(ValueError, hvd.grouped_allreduce_, [np.ones(3), array])
    raises(ValueError, hvd.broadcast_, np.broadcast_to(np.ones(1), (3,)), 0)
    assert array.tolist() == [1.0] * 3


def check_empty():
    assert hvd.allreduce(np.empty((0, 3)), op=hvd.Sum).shape == (0, 3)
    assert hvd.allgather(np.empty((0, 3))).shape == (0, 3)
    assert hvd.broadcast(np.empty(0), 0).shape == (0,)


def check_join_barrier():
    hvd.barrier()
    for batch in range(hvd.rank() + 1):
        close(hvd.allreduce(np.ones(1), op=hvd.Sum, name=f"j{batch}"), [hvd.size() - batch])
    assert hvd.join() == hvd.size() - 1
