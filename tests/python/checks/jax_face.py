# SPDX-License-Identifier: Apache-2.0
"""hora.jax: the operations and their gradients on arrays and inside jit, training."""

import jax
import jax.numpy as jnp
import numpy as np

import hora.jax as hvd
from hora import jax_operations
from hora.jax_elastic import JaxState, run
from hora.jax_operations import ProgramError
from support.expect import close, raises

jax.config.update("jax_enable_x64", True)


def modes(function):
    return function, jax.jit(function)


def ranks_values(shape, dtype=jnp.float64):
    generator = np.random.default_rng(3)
    return [jnp.asarray(generator.uniform(1, 4, shape), dtype) for _ in range(hvd.size())]


def own(values):
    return values[hvd.rank()]


def check_allreduce():
    values = ranks_values((4, 2))
    stacked = np.stack(values)
    for op, expected in (
        (hvd.Average, stacked.mean(0)),
        (hvd.Sum, stacked.sum(0)),
        (hvd.Min, stacked.min(0)),
        (hvd.Max, stacked.max(0)),
        (hvd.Product, stacked.prod(0)),
    ):
        for call in modes(lambda x: hvd.allreduce(x, op=op)):
            result = call(own(values))
            assert isinstance(result, jax.Array) and result.dtype == jnp.float64
            close(result, expected)
    for call in modes(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, name="scaled")):
        close(call(own(values)), stacked.sum(0) * 1.5)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for call in modes(lambda x: hvd.allreduce(x, compression=compression)):
            assert call(own(values)).dtype == jnp.float64
            close(call(own(values)), stacked.mean(0), 3e-2)
    close(hvd.allreduce(2.0, op=hvd.Sum), 2 * hvd.size())
    close(hvd.allreduce(own(values), average=True), stacked.mean(0))


def check_results_are_not_copied():
    from hora.aligned_arrays import aligned_empty
    from hora.jax_operations import as_jax

    for dtype in (np.float32, np.int64, np.bool_):
        result = aligned_empty((300, 300), dtype)
        assert as_jax(result).unsafe_buffer_pointer() == result.ctypes.data, dtype


def check_dtypes_and_shapes():
    for dtype in ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "bool"):
        for shape in ((3, 2), (), (0, 4)):
            mine = jnp.full(shape, 1, dtype)
            for call in modes(lambda x: hvd.allreduce(x, op=hvd.Max)):
                result = call(mine)
                assert result.dtype == mine.dtype and result.shape == shape
                close(result, np.ones(shape))
    for values in (jnp.array([1 + 2j, -3j]), jnp.array([200, 255], jnp.uint8), jnp.array([65504.0], jnp.float16)):
        for call in modes(hvd.allreduce):
            result = call(values)
            assert result.dtype == values.dtype and bool((result == values).all())
    large = jnp.array([1e30, 1e-30], jnp.bfloat16)  # what has two bytes travels as it is
    close(hvd.allreduce(large, compression=hvd.Compression.fp16) / large, [1, 1])
    for dtype in ("uint32", "complex64", "float8_e4m3fn", "int4"):
        mine = jnp.full((2, 2), 1).astype(dtype)
        for call in modes(lambda x: hvd.broadcast(x, 0)):
            assert call(mine).dtype == mine.dtype
        assert hvd.allgather(mine).dtype == mine.dtype
    for dtype in ("int2", "uint4", "float4_e2m1fn"):  # several elements share a byte
        if not hasattr(jnp, dtype):
            continue
        of = [jnp.array([rank % 2, 1, 0, 1, 1]).astype(dtype) for rank in range(hvd.size())]
        for call in modes(lambda x: (hvd.allgather(x), hvd.broadcast(x, hvd.size() - 1), hvd.grouped_allgather([x]))):
            gathered, sent, (grouped,) = call(own(of))
            assert gathered.dtype == sent.dtype == of[0].dtype
            assert gathered.tolist() == grouped.tolist() == [value for each in of for value in each.tolist()]
            assert sent.tolist() == of[-1].tolist()
        raises(ValueError, jax.jit(hvd.allreduce), of[0])
    strided = jnp.arange(12.0).reshape(3, 4).T
    close(hvd.allreduce(strided, op=hvd.Sum), strided * hvd.size())


def check_other_operations():
    rank, size = hvd.rank(), hvd.size()
    for call in modes(hvd.allgather):
        close(call(jnp.full((2, 3), rank)), np.repeat(np.arange(size), 2)[:, None] * np.ones(3))
    close(hvd.allgather(jnp.full(rank + 1, rank)), np.concatenate([[r] * (r + 1) for r in range(size)]))
    for call in modes(lambda x: hvd.grouped_allgather([x, 2 * x])):
        first, second = call(jnp.full(1, rank + 1.0))
        close(first, np.arange(size) + 1.0)
        close(second, 2 * np.arange(size) + 2.0)
    for root in range(size):
        for call in modes(lambda x: hvd.broadcast(x, root)):
            close(call(jnp.full(3, rank)), np.full(3, root))
    for call in modes(hvd.alltoall):
        close(call(jnp.arange(size) + 100 * rank), [100 * r + rank for r in range(size)])
    received, splits = hvd.alltoall(
        jnp.concatenate([jnp.full(to + 1, 10 * rank + to) for to in range(size)]), splits=[to + 1 for to in range(size)]
    )
    close(received, np.concatenate([[10 * r + rank] * (rank + 1) for r in range(size)]))
    close(splits, [rank + 1] * size)
    values = ranks_values((2 * size + 1, 2))
    total = np.sum(values, axis=0)
    start = 2 * rank + min(rank, 1)
    rows = 2 + (rank < 1)
    for call in modes(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
        close(call(own(values)), total[start : start + rows])
    for call in modes(lambda x: hvd.grouped_reducescatter([x, 3 * x])):
        close(call(own(values))[1], 3 * total[start : start + rows] / size)
    for call in modes(lambda x: hvd.grouped_allreduce([x, x.astype(jnp.float32)], op=hvd.Sum)):
        first, second = call(own(values))
        close(first, total)
        assert second.dtype == jnp.float32
    handles = [hvd.allreduce_async(jnp.full(2, float(index)), op=hvd.Sum, name=f"h{index}") for index in range(5)]
    for index, handle in enumerate(handles):
        close(hvd.synchronize(handle), np.full(2, index * size))
    close(hvd.synchronize(hvd.allgather_async(jnp.full(1, rank))), range(size))
    close(hvd.synchronize(hvd.broadcast_async(jnp.full(1, rank), 0)), [0])
    last = hvd.allgather_async(jnp.full(1, rank))
    hvd.barrier()
    close(hvd.synchronize(last), range(size))
    assert hvd.poll(last), "a handle that is not in flight any more"
    assert 0 <= hvd.join() < size


def check_gradients():
    """Against what one process computes that holds every rank's arrays."""
    size, rank = hvd.size(), hvd.rank()
    tensors = ranks_values((2 * size, 2))
    weights = [jnp.asarray(np.random.default_rng(r).normal(size=(2 * size, 2))) for r in range(size)]

    def reference(function):
        def loss(xs):
            return sum((w[: y.shape[0]] * y).sum() for w, y in zip(weights, function(xs)))

        return jax.grad(loss)(tensors)[rank]

    def ours(function):
        def loss(x):
            y = function(x)
            return (y * weights[rank][: y.shape[0]]).sum()

        return (
            jax.grad(loss)(own(tensors)),
            jax.jit(jax.grad(loss))(own(tensors)),
            jax.grad(jax.jit(loss))(own(tensors)),
        )

    combine = {
        hvd.Sum: lambda xs: sum(xs),
        hvd.Average: lambda xs: sum(xs) / size,
        hvd.Max: lambda xs: jnp.max(jnp.stack(xs), 0),
        hvd.Min: lambda xs: jnp.min(jnp.stack(xs), 0),
        hvd.Product: lambda xs: jnp.prod(jnp.stack(xs), 0),
    }
    for op, function in combine.items():
        expected = reference(lambda xs: [3.0 * function([0.5 * x for x in xs])] * size)
        for gradient in ours(lambda x: hvd.allreduce(x, op=op, prescale_factor=0.5, postscale_factor=3.0)):
            close(gradient, expected)
    # Horovod's conventions: averaged for allgather and broadcast, times size for reducescatter.
    rows = 2 * size
    expected = reference(lambda xs: [sum(xs)[:rows]] * size) / size
    for gradient in ours(lambda x: hvd.allgather(x)[rank * rows : rank * rows + rows]):
        assert gradient.shape == (rows, 2)
    expected = reference(lambda xs: [xs[0]] * size) / size
    for gradient in ours(lambda x: hvd.broadcast(x, 0)):
        close(gradient, expected)
    expected = reference(lambda xs: [jnp.concatenate([x[2 * to : 2 * to + 2] for x in xs]) for to in range(size)])
    for gradient in ours(hvd.alltoall):
        close(gradient, expected)
    expected = reference(lambda xs: [sum(xs)[2 * to : 2 * to + 2] for to in range(size)])
    for gradient in ours(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
        close(gradient, expected * size)


def check_gradient_of_allgather():
    size, rank = hvd.size(), hvd.rank()
    tensors = [jnp.full((r + 1, 2), r + 1.0) for r in range(size)]
    weights = jnp.arange(size * (size + 1), dtype=jnp.float64).reshape(-1, 2)
    gradient = jax.grad(lambda x: (hvd.allgather(x) ** 2 * weights).sum())(tensors[rank])
    start = rank * (rank + 1) // 2
    close(gradient, 2 * (rank + 1) * weights[start : start + rank + 1])
    # One that has as many rows as all have on average does not know by that how many the others have.
    rows = [1] + [2] * (size - 2) + [3] if size > 2 else [1] * size
    start = sum(rows[:rank])
    weights = jnp.arange(float(sum(rows)))

    def loss(x):
        return (hvd.allgather(x) ** 3 * weights).sum()

    mine = jnp.full(rows[rank], rank + 1.0)
    own_weights = weights[start : start + rows[rank]]
    close(jax.grad(loss)(mine), 3 * (rank + 1) ** 2 * own_weights)
    second = jax.grad(lambda x: jax.grad(loss)(x).sum())(mine)
    close(second, 6 * (rank + 1) * own_weights / size)
    same = jax.jit(jax.grad(lambda x: (hvd.allgather(x) ** 2).sum()))(jnp.full(2, rank + 1.0))
    close(same, np.full(2, 2 * (rank + 1.0)))


def check_control_flow():
    def loop(x):
        return jax.lax.scan(lambda c, _: (hvd.allreduce(c, op=hvd.Average), c.sum()), x, None, length=3)[0]

    mean = (hvd.size() - 1) / 2
    for call in modes(loop):
        close(call(jnp.full(2, float(hvd.rank()))), np.full(2, mean))
    close(
        jax.jit(lambda x: jax.lax.cond(x[0] >= 0, hvd.allreduce, lambda y: y, x))(jnp.full(2, float(hvd.rank()))),
        np.full(2, mean),
    )
    second = jax.grad(lambda x: jax.grad(lambda y: hvd.allreduce(y**3, op=hvd.Sum))(x))(2.0 + hvd.rank())
    close(second, hvd.size() * 6 * (2.0 + hvd.rank()))


def check_many_callbacks():
    """A compiled program with many operations on few cores."""

    @jax.jit
    def many(x):
        total = x
        for index in range(30):
            total = total + hvd.allreduce(jnp.tanh(x * index) @ jnp.ones((64, 64)), op=hvd.Sum)
        return total

    x = jnp.full((64, 64), 0.1 * (hvd.rank() + 1))
    expected = x + sum(
        sum(jnp.tanh(0.1 * (r + 1) * jnp.ones((64, 64)) * index) @ jnp.ones((64, 64)) for r in range(hvd.size()))
        for index in range(30)
    )
    for _ in range(5):
        close(many(x), expected)


def check_calls_of_libhora():
    """What a compiled program calls where it can gives what callbacks give, which the other releases have."""
    if jax_operations.xla is None or not jax_operations.xla.is_usable():
        raise Skip(f"JAX {jax.__version__} has none of what calls of libhora need")
    size = hvd.size()
    functions = [
        lambda x: hvd.allreduce(x, op=hvd.Max, prescale_factor=2.0, postscale_factor=0.5),
        lambda x: hvd.allreduce(x.astype(jnp.bfloat16), op=hvd.Sum),
        lambda x: hvd.allreduce(x * 1j, op=hvd.Sum),
        lambda x: hvd.grouped_allreduce([x, x.astype(jnp.int32)], op=hvd.Sum, name="group"),
        lambda x: hvd.allgather(x.astype(jnp.float8_e4m3fn)),
        lambda x: hvd.grouped_allgather([x > 2, x]),
        lambda x: hvd.broadcast(x, size - 1, name="root"),
        lambda x: hvd.alltoall(x),
        lambda x: hvd.reducescatter(x[1:], op=hvd.Sum),
    ]
    if size > 1:  # alone, the gradients are what they were
        functions.append(lambda x: hvd.allreduce_gradients({"a": x, "b": [x[:1], x[0, 0]]}))
    x = own(ranks_values((2 * size, 3)))
    usable = jax_operations.xla
    for function in functions:
        calls = jax.jit(function)
        called = calls(x)
        assert "hora_collectives" in calls.lower(x).as_text()
        try:
            jax_operations.xla = None
            expected = jax.jit(lambda x, function=function: function(x))(x)
        finally:
            jax_operations.xla = usable
        for one, other in zip(jax.tree_util.tree_leaves(called), jax.tree_util.tree_leaves(expected)):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert np.array_equal(np.asarray(one), np.asarray(other)), (one, other)
    rows = jnp.stack([x, x + 1, x * 2])
    for function in (functions[0], functions[3], functions[5], *functions[7:9]):
        mapped = jax.jit(jax.vmap(function))(rows)
        separate = [function(row) for row in rows]
        for index, row in enumerate(separate):
            for one, other in zip(jax.tree_util.tree_leaves(mapped), jax.tree_util.tree_leaves(row)):
                close(one[index], other)

    def loss(x):
        return (hvd.allreduce(jnp.sin(x), op=hvd.Sum) ** 2).sum()

    close(jax.jit(jax.grad(jax.checkpoint(loss)))(x), jax.grad(loss)(x))
    close(jax.jacrev(lambda x: hvd.allreduce(x, op=hvd.Sum))(x[0]), size * jnp.eye(3))


def check_trees():
    tree = {"a": jnp.full(3, float(hvd.rank())), "b": [np.full(2, hvd.rank()), hvd.rank(), "text"]}
    got = hvd.broadcast_parameters(tree, root_rank=hvd.size() - 1)
    close(got["a"], np.full(3, hvd.size() - 1))
    close(got["b"][0], np.full(2, hvd.size() - 1))
    assert got["b"][1] == hvd.size() - 1 and got["b"][2] == "text"
    for leaf in (
        jax.random.PRNGKey(hvd.rank()),
        jax.random.key(hvd.rank()),
        jnp.full((2, 2), 2**32 - 1 - hvd.rank(), jnp.uint32),
        jnp.full(3, hvd.rank() + 0.5, jnp.float8_e4m3fn),
    ):
        got = hvd.broadcast_parameters({"leaf": leaf}, root_rank=0)["leaf"]
        assert got.dtype == leaf.dtype and got.shape == leaf.shape, (got, leaf)
        texts = hvd.allgather_object(repr(got))
        assert texts[0] == texts[-1] and (hvd.rank() != 0 or texts[0] == repr(leaf)), texts
    averaged = hvd.metric_average({"loss": float(hvd.rank()), "n": jnp.asarray(2 * hvd.rank())})
    close(averaged["loss"], (hvd.size() - 1) / 2)
    close(averaged["n"], hvd.size() - 1)


# --- training ----------------------------------------------------------------------------------------


class Sgd:
    """A gradient transformation with momentum, without optax."""

    @staticmethod
    def init(params):
        return jax.tree_util.tree_map(jnp.zeros_like, params)

    @staticmethod
    def update(updates, state, params=None):
        state = jax.tree_util.tree_map(lambda m, g: 0.9 * m + g, state, updates)
        return jax.tree_util.tree_map(lambda m: -0.1 * m, state), state


def data(steps=4, rows=4):
    generator = np.random.default_rng(5)
    return [
        [(generator.normal(size=(rows, 3)), generator.normal(size=(rows, 2))) for _ in range(hvd.size())]
        for _ in range(steps)
    ]


def parameters(seed=0):
    generator = np.random.default_rng(seed)
    return {"w": jnp.asarray(generator.normal(size=(3, 2))), "b": jnp.zeros(2)}


def loss_of(params, x, y):
    return ((jnp.tanh(x @ params["w"]) + params["b"] - y) ** 2).mean()


def train(optimizer, params, batches, jit=True):
    state = optimizer.init(params)

    def step(params, state, x, y):
        gradients = jax.grad(loss_of)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return jax.tree_util.tree_map(jnp.add, params, updates), state

    step = jax.jit(step) if jit else step
    for x, y in batches:
        params, state = step(params, state, x, y)
    return params


def whole():
    batches = [(np.concatenate([x for x, _ in step]), np.concatenate([y for _, y in step])) for step in data()]
    return train(Sgd, parameters(), batches)


def check_training_is_the_same():
    start = hvd.broadcast_parameters(parameters(seed=hvd.rank()))
    for options in ({}, {"groups": 1}, {"gradient_predivide_factor": 2.0}, {"compression": hvd.Compression.fp16}):
        for jit in (True, False):
            trained = train(hvd.DistributedOptimizer(Sgd, **options), start, [own(step) for step in data()], jit)
            tolerance = 5e-3 if "compression" in options else 1e-6
            for name, value in whole().items():
                close(trained[name], value, tolerance)
    raises(ValueError, hvd.DistributedOptimizer, Sgd, backward_passes_per_step=0)


def check_backward_passes_per_step():
    halves = [(x[part], y[part]) for x, y in (own(step) for step in data()) for part in (slice(0, 2), slice(2, 4))]
    optimizer = hvd.DistributedOptimizer(Sgd, backward_passes_per_step=2, average_aggregated_gradients=True)
    for jit in (True, False):
        trained = train(optimizer, parameters(), halves, jit)
        for name, value in whole().items():
            close(trained[name], value)


def check_optax():
    try:
        import optax
    except ImportError:
        raise Skip("optax is not installed") from None
    optimizer = hvd.DistributedOptimizer(optax.adam(0.01))
    assert isinstance(optimizer, type(optax.adam(0.01)))
    trained = train(optimizer, parameters(), [own(step) for step in data()])
    expected = train(
        optax.adam(0.01),
        parameters(),
        [(np.concatenate([x for x, _ in step]), np.concatenate([y for _, y in step])) for step in data()],
    )
    for name, value in expected.items():
        close(trained[name], value)


class Skip(Exception):
    pass


def check_elastic_state():
    state = JaxState(params=parameters(seed=hvd.rank()), epoch=hvd.rank(), note=["a"])
    state.sync()
    close(state.params["w"], parameters(0)["w"])
    assert state.epoch == 0
    state.params = parameters(5)
    state.note.append("b")
    state.restore()
    close(state.params["w"], parameters(0)["w"])
    assert state.note == ["a"]
    assert run(lambda state: state.epoch + 1)(state) == 1


def check_errors():
    raises(ValueError, hvd.allgather, jnp.float32(1.0))
    raises(ValueError, hvd.reducescatter, jnp.ones(hvd.size()), op=hvd.Max)
    raises(ValueError, jax.jit(lambda x: hvd.alltoall(x, splits=[1] * hvd.size())), jnp.ones(hvd.size()))
    if hvd.size() > 1:
        raises(ValueError, hvd.alltoall, jnp.ones(hvd.size() + 1))
        error = raises(hvd.HorovodInternalError, hvd.allreduce, jnp.ones(hvd.rank() + 1), "bad")
        assert "bad" in str(error)
        compiled = jax.jit(lambda x: hvd.allreduce(x, "bad"))
        error = raises(ProgramError, lambda: jax.block_until_ready(compiled(jnp.ones(hvd.rank() + 1))))
        assert "TensorMismatchError" in str(error)
        close(hvd.allreduce(jnp.ones(1), op=hvd.Sum), [hvd.size()])


def check_nothing_is_left():
    from hora import operations

    assert operations.in_flight_count() == 0
