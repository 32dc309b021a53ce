# SPDX-License-Identifier: Apache-2.0
"""The operations of horovod.tensorflow, in eager mode and in tf.function."""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import errors
from support.expect import close, raises

REDUCED = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16")
MOVED = (*REDUCED, "uint16", "int16", "bool", "uint32", "uint64", "complex64", "complex128")


def modes(function):
    """The function as it is, and as a graph."""
    return function, tf.function(function)


def numbers(tensor):
    return np.asarray(tf.cast(tensor, tf.float64))


def ranks_values(shape, dtype=tf.float32):
    """Every rank's tensor, the same on all ranks."""
    generator = np.random.default_rng(3)
    return [tf.constant(generator.uniform(1, 4, shape).astype(np.float32), dtype=dtype) for _ in range(hvd.size())]


def own(values):
    return values[hvd.rank()]


def check_topology():
    assert hvd.size_op().numpy() == hvd.size()
    assert hvd.rank_op().numpy() == hvd.rank()
    assert hvd.local_rank_op().numpy() == hvd.local_rank()
    assert hvd.local_size_op().numpy() == hvd.local_size()
    assert hvd.process_set_included_op().numpy() == 1

    @tf.function
    def ask():
        return (
            hvd.size_op(),
            hvd.rank_op(name="r"),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(0),
        )

    answers = [int(answer) for answer in ask()]
    assert answers == [hvd.size(), hvd.rank(), hvd.local_rank(), hvd.local_size(), 1]
    assert hvd.is_homogeneous() in (True, False)
    assert hvd.check_num_rank_power_of_2(4) and not hvd.check_num_rank_power_of_2(6)
    raises(ValueError, hvd.size_op, 77)


def check_allreduce_dtypes():
    for dtype in map(tf.as_dtype, REDUCED):
        mine = tf.cast(tf.fill([3, 2], hvd.rank() + 1), dtype)
        for call in modes(lambda x: hvd.allreduce(x, op=hvd.Sum)):
            result = call(mine)
            assert result.dtype == dtype and result.shape == (3, 2)
            close(numbers(result), np.full((3, 2), sum(range(1, hvd.size() + 1))))


def check_allreduce_ops():
    values = ranks_values((4,))
    stacked = np.stack([numbers(value) for value in values])
    expected = {
        hvd.Average: stacked.mean(0),
        hvd.Sum: stacked.sum(0),
        hvd.Min: stacked.min(0),
        hvd.Max: stacked.max(0),
        hvd.Product: stacked.prod(0),
    }
    for op, result in expected.items():
        for call in modes(lambda x: hvd.allreduce(x, op=op, name=f"op{op}")):
            close(numbers(call(own(values))), result, 1e-5)
    close(numbers(hvd.allreduce(own(values))), stacked.mean(0), 1e-5)
    close(numbers(hvd.allreduce(own(values), average=False)), stacked.sum(0), 1e-5)
    raises(ValueError, hvd.allreduce, own(values), average=True, op=hvd.Sum)
    scaled = hvd.allreduce(own(values), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    close(numbers(scaled), stacked.sum(0) * 1.5, 1e-5)


def check_allreduce_shapes():
    for shape in ((), (0,), (1,), (0, 3), (2, 3, 4), (1000, 3)):
        mine = tf.ones(shape)
        for call in modes(lambda x: hvd.allreduce(x, op=hvd.Sum)):
            result = call(mine)
            assert result.shape == shape, (result.shape, shape)
            close(numbers(result), np.full(shape, hvd.size()))
    close(numbers(hvd.allreduce([1.0, 2.0], op=hvd.Sum)), [hvd.size(), 2 * hvd.size()])
    variable = tf.Variable([1.0, 2.0])
    close(numbers(hvd.allreduce(variable, op=hvd.Sum)), [hvd.size(), 2 * hvd.size()])


def check_unknown_shapes():
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def both(x):
        return hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)

    total, gathered = both(tf.ones((3, 2)))
    close(numbers(total), np.full((3, 2), hvd.size()))
    assert gathered.shape == (3 * hvd.size(), 2)


def check_compression():
    values = ranks_values((5,))
    expected = np.mean([numbers(value) for value in values], axis=0)
    for compression, tolerance in (
        (hvd.Compression.fp16, 2e-3),
        (hvd.Compression.bf16, 2e-2),
        (hvd.Compression.none, 1e-6),
    ):
        for call in modes(lambda x: hvd.allreduce(x, compression=compression)):
            result = call(own(values))
            assert result.dtype == tf.float32
            close(numbers(result), expected, tolerance)
    integers = hvd.allreduce(tf.constant([1, 2]), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert integers.dtype == tf.int32
    large = tf.constant([1e30, 1e-30], tf.bfloat16)  # what has two bytes travels as it is
    close(numbers(hvd.allreduce(large, compression=hvd.Compression.fp16)) / numbers(large), [1, 1])


def check_numbers_that_are_awkward_to_reduce():
    """Complex ones, those whose sum their type cannot hold, and NaN."""
    for call in modes(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        assert np.array_equal(call(tf.constant([1 + 2j, -3j])).numpy(), np.array([1 + 2j, -3j]) * hvd.size())
    for values in (tf.constant([200, 255], tf.uint8), tf.constant([65504.0, -65504.0], tf.float16)):
        for call in modes(hvd.allreduce):
            assert np.array_equal(call(values).numpy(), values.numpy())
    for op in (hvd.Min, hvd.Max):
        for call in modes(lambda x: hvd.allreduce(x, op=op)):
            not_a_number = call(tf.constant([1.0, float("nan") if hvd.rank() == hvd.size() - 1 else 2.0]))
            assert np.isnan(not_a_number.numpy()).tolist() == [False, True]


def check_many_in_one_graph():
    """Operations overlap: none waits for another one's result before it starts."""
    values = [tf.fill([index + 1], float(hvd.rank() + index)) for index in range(40)]

    @tf.function
    def reduce_all(tensors):
        return [hvd.allreduce(tensor, op=hvd.Sum) for tensor in tensors]

    for _ in range(3):
        for index, result in enumerate(reduce_all(values)):
            close(numbers(result), np.full(index + 1, sum(rank + index for rank in range(hvd.size()))))


def check_order_of_names():
    """Ranks may write their operations in different orders."""
    order = list(range(8))
    if hvd.rank() % 2:
        order.reverse()

    @tf.function
    def reduce_all():
        return {index: hvd.allreduce(tf.fill([2], float(index)), op=hvd.Sum, name=f"o{index}") for index in order}

    for index, result in reduce_all().items():
        close(numbers(result), np.full(2, index * hvd.size()))


def check_in_branches_and_loops():
    @tf.function
    def branch(flag, x):
        return tf.cond(flag, lambda: hvd.allreduce(x, op=hvd.Sum, name="branch"), lambda: x)

    close(numbers(branch(tf.constant(True), tf.ones(2))), np.full(2, hvd.size()))
    close(numbers(branch(tf.constant(False), tf.ones(2))), np.ones(2))

    @tf.function
    def loop(x):
        for _ in tf.range(3):
            x = hvd.allreduce(x, op=hvd.Sum, name="loop")
        return x

    close(numbers(loop(tf.ones(2))), np.full(2, hvd.size() ** 3))


def check_grouped_allreduce():
    values = ranks_values((3,))
    total = np.sum([numbers(value) for value in values], axis=0)
    for call in modes(lambda x: hvd.grouped_allreduce([x, tf.cast(2 * x, tf.float64), tf.zeros((0, 2))], op=hvd.Sum)):
        first, second, empty = call(own(values))
        close(numbers(first), total, 1e-5)
        close(numbers(second), 2 * total, 1e-5)
        assert empty.shape == (0, 2) and second.dtype == tf.float64
    close(numbers(hvd.grouped_allreduce([own(values)], compression=hvd.Compression.fp16)[0]), total / hvd.size(), 2e-3)
    assert hvd.grouped_allreduce([], op=hvd.Sum) == []


def check_sparse():
    rank, size = hvd.rank(), hvd.size()
    mine = tf.IndexedSlices(
        tf.fill([rank + 1, 2], float(rank + 1)), tf.range(rank + 1, dtype=tf.int64), tf.constant([size, 2], tf.int64)
    )

    def dense(slices):
        return tf.math.unsorted_segment_sum(slices.values, slices.indices, size)

    expected = np.zeros((size, 2))
    for other in range(size):
        expected[: other + 1] += other + 1
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / size)):
        for call in modes(
            lambda values, indices: dense(hvd.allreduce(tf.IndexedSlices(values, indices, mine.dense_shape), op=op))
        ):
            close(numbers(call(mine.values, mine.indices)), expected * factor)
    raises(NotImplementedError, hvd.allreduce, mine, op=hvd.Max)
    raises(NotImplementedError, hvd.allreduce, mine, op=hvd.Adasum)
    dense_one, sparse_one = hvd.grouped_allreduce([tf.ones(2), mine], op=hvd.Sum)
    close(numbers(dense_one), np.full(2, size))
    close(numbers(dense(sparse_one)), expected)


def check_allgather():
    rank, size = hvd.rank(), hvd.size()
    for dtype in map(tf.as_dtype, MOVED):
        mine = tf.cast(tf.fill([rank + 1, 2], 1), dtype)
        for call in modes(hvd.allgather):
            result = call(mine)
            assert result.dtype == dtype and result.shape == (size * (size + 1) // 2, 2)
            close(numbers(result), np.ones(result.shape))
    for call in modes(lambda x: hvd.grouped_allgather([x, tf.cast(x, tf.float64)[:1]])):
        first, second = call(tf.fill([rank + 1], float(rank)))
        close(numbers(first), np.concatenate([[r] * (r + 1) for r in range(size)]))
        close(numbers(second), range(size))
    raises(ValueError, hvd.allgather, tf.constant(1.0))


def check_broadcast():
    for root in range(hvd.size()):
        for dtype in map(tf.as_dtype, MOVED):
            mine = tf.cast(tf.fill([2, 2], int(hvd.rank() == root)), dtype)
            for call in modes(lambda x: hvd.broadcast(x, root, name="b")):
                result = call(mine)
                assert result.dtype == dtype
                close(numbers(result), np.ones((2, 2)))


def check_broadcast_in_place():
    variables = [tf.Variable(tf.fill([2], float(hvd.rank() + 5))), tf.Variable(hvd.rank())]
    answer = hvd.broadcast_(variables, 0)
    assert answer[0] is variables[0]
    close(variables[0], [5.0, 5.0])
    assert int(variables[1]) == 0
    other = [tf.Variable(tf.fill([3], float(hvd.rank()))), tf.Variable(True)]
    hvd.broadcast_variables(other, root_rank=hvd.size() - 1)
    close(other[0], np.full(3, hvd.size() - 1))

    again = tf.Variable(float(hvd.rank() + 1))

    @tf.function
    def in_graph():
        hvd.broadcast_variables([again], root_rank=0)
        return again.read_value()

    close(in_graph(), 1.0)


def check_alltoall():
    rank, size = hvd.rank(), hvd.size()
    splits = [to + 1 for to in range(size)]
    mine = tf.concat([tf.fill([to + 1, 2], float(10 * rank + to)) for to in range(size)], 0)
    expected = np.concatenate([np.full((rank + 1, 2), 10 * r + rank) for r in range(size)])
    for call in modes(lambda x: hvd.alltoall(x, splits=splits)):
        received, received_splits = call(mine)
        close(numbers(received), expected)
        assert received_splits.numpy().tolist() == [rank + 1] * size
    for call in modes(lambda x, s: hvd.alltoall(x, splits=s)):
        close(numbers(call(mine, tf.constant(splits))[0]), expected)
    for call in modes(hvd.alltoall):
        close(numbers(call(tf.range(size) + 100 * rank)), [100 * r + rank for r in range(size)])
    if size > 1:
        raises(ValueError, hvd.alltoall, tf.range(size + 1))
    raises(ValueError, hvd.alltoall, tf.constant(3))


def check_reducescatter():
    rank, size = hvd.rank(), hvd.size()
    rows = 2 * size + 1
    values = ranks_values((rows, 3))
    stacked = np.stack([numbers(value) for value in values])
    start = 2 * rank + min(rank, 1)
    end = start + 2 + (1 if rank < 1 else 0)
    for op, whole in ((hvd.Sum, stacked.sum(0)), (hvd.Average, stacked.mean(0))):
        for call in modes(lambda x: hvd.reducescatter(x, op=op)):
            close(numbers(call(own(values))), whole[start:end], 1e-5)
        for call in modes(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=op)):
            first, second = call(own(values))
            close(numbers(first), whole[start:end], 1e-5)
            close(numbers(second), 2 * whole[start:end], 1e-5)
    scaled = hvd.reducescatter(own(values), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    close(numbers(scaled), 2 * stacked.sum(0)[start:end], 1e-5)
    raises(ValueError, hvd.reducescatter, own(values), op=hvd.Max)


def check_objects():
    value = {"rank": hvd.rank(), "array": np.arange(3)}
    got = hvd.broadcast_object(value, root_rank=hvd.size() - 1)
    assert got["rank"] == hvd.size() - 1
    assert hvd.broadcast_object_fn(root_rank=0)(hvd.rank()) == 0
    assert hvd.allgather_object(("r", hvd.rank())) == [("r", r) for r in range(hvd.size())]


def check_process_sets():
    if hvd.size() < 2:
        return
    members = hvd.size() - 1  # all but the last rank
    most = hvd.add_process_set(range(members))
    if hvd.rank() < members:
        for call in modes(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=most)):
            close(numbers(call(tf.ones(2))), [members, members])
        for call in modes(lambda x: hvd.allgather(x, process_set=most)):
            close(numbers(call(tf.fill([1], hvd.rank()))), range(members))
        assert int(hvd.size_op(most.process_set_id)) == members
    else:
        raises(ValueError, hvd.allreduce, tf.ones(2), process_set=most)
    assert int(hvd.process_set_included_op(most.process_set_id)) == int(hvd.rank() < members)
    assert hvd.remove_process_set(most)


def check_errors():
    """Local mistakes are ValueErrors, disagreements the same text on all ranks; the job goes
    on."""
    raises((ValueError, TypeError), hvd.allreduce, tf.constant(["text"]))
    assert hvd._executing_eagerly() and not tf.function(hvd._executing_eagerly)()
    invalid = tf.errors.InvalidArgumentError
    size = hvd.size()
    for call in (
        lambda: hvd.broadcast(tf.ones(1), root_rank=99),
        lambda: hvd.alltoall(tf.ones(1), splits=[2] * size),
        lambda: hvd.alltoall(tf.ones(1), splits=[-1] * size),
        lambda: hvd.alltoall(tf.ones(1), splits=[1] * (size + 1)),
        lambda: hvd.alltoall(tf.constant(1.0)),
        lambda: hvd.allgather(tf.constant(1.0)),
        lambda: hvd.reducescatter(tf.constant(1.0)),
    ):
        error = raises(ValueError, call)
        assert isinstance(error, invalid) and error.message == str(error), repr(error)
        raises(invalid, tf.function(call))
    lost = errors.in_tensorflow(hvd.HorovodInternalError("rank 1 is lost"))
    assert isinstance(lost, hvd.HorovodInternalError) and isinstance(lost, tf.errors.UnknownError) and lost.recoverable
    ragged, sparse = tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.sparse.from_dense([1.0, 0.0])
    for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, tf.function(hvd.allreduce)):
        assert "tf.RaggedTensor; pass tensor.to_tensor()" in str(raises(ValueError, call, ragged))
        assert "tf.SparseTensor; pass tf.sparse.to_dense" in str(raises(ValueError, call, sparse))
    raises(TypeError, hvd.allreduce, tf.ones(1), op="sum")
    raises(TypeError, hvd.allreduce, tf.ones(1), process_set=0)
    raises(TypeError, hvd.DistributedGradientTape, None)
    for call, wrong in ((hvd.broadcast_variables, np.ones(2)), (hvd.broadcast_, tf.ones(2))):
        assert "model.variables" in str(raises(TypeError, call, [tf.Variable(1.0), wrong], 0))
        assert "model.variables, not NoneType" in str(raises(TypeError, call, None, 0))
    assert len(hvd.grouped_allreduce(tf.ones(1) for _ in range(2))) == 2
    assert len(hvd.grouped_reducescatter(tf.ones(hvd.size()) for _ in range(2))) == 2
    if hvd.size() > 1:
        error = raises(hvd.HorovodInternalError, hvd.allreduce, tf.ones(hvd.rank() + 1), name="mismatch")
        assert "mismatch" in str(error) and "shape differs" in str(error), str(error)
        assert isinstance(error, tf.errors.FailedPreconditionError) and isinstance(error, ValueError)
        assert len(set(hvd.allgather_object(str(error)))) == 1
        graph = tf.function(lambda x: hvd.allreduce(x, name="mismatch"))
        error = raises(tf.errors.FailedPreconditionError, graph, tf.ones(hvd.rank() + 1))
        assert "TensorMismatchError: " in error.message, error.message
        assert "shape differs" in error.message, error.message
        for call in modes(lambda x: hvd.allreduce(x, name="after", op=hvd.Sum)):
            close(numbers(call(tf.ones(1))), [hvd.size()])


def check_big_endian_arrays():
    """In a graph, TensorFlow itself takes their bytes as they are (findings/tensorflow-big-endian-constants.sh)."""
    rows = np.arange(2 * hvd.size()).astype(">i4")
    operations = {
        "allreduce": lambda: hvd.allreduce(rows, op=hvd.Sum),
        "grouped_allreduce": lambda: hvd.grouped_allreduce([rows], op=hvd.Sum)[0],
        "allgather": lambda: hvd.allgather(rows),
        "grouped_allgather": lambda: hvd.grouped_allgather([rows])[0],
        "broadcast": lambda: hvd.broadcast(rows, 0),
        "alltoall": lambda: hvd.alltoall(rows, [2] * hvd.size())[0],
        "reducescatter": lambda: hvd.reducescatter(rows, op=hvd.Sum),
        "grouped_reducescatter": lambda: hvd.grouped_reducescatter([rows], op=hvd.Sum)[0],
    }
    for name, operation in operations.items():
        eager, graph = (call().numpy() for call in modes(operation))
        assert eager.max() <= 2 * hvd.size() ** 2 and np.array_equal(eager, graph), (name, eager, graph)


def check_join():
    steps = hvd.rank() + 1
    for step in range(steps):
        hvd.allreduce(tf.ones(1), op=hvd.Sum, name=f"step{step}")
    last = hvd.join()
    assert int(last) == hvd.size() - 1, last
    assert int(tf.function(hvd.join)()) in range(hvd.size())


def check_nothing_is_left():
    from hora import operations

    for _ in range(20):
        hvd.allreduce(tf.ones(10))
    assert operations.in_flight_count() == 0, operations._in_flight
