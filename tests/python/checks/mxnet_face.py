# SPDX-License-Identifier: Apache-2.0
"""horovod.mxnet: the operations, and training that equals one process."""

import ctypes
import types

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd
from hora import dtypes
from horovod.common import util
from horovod.mxnet import tensors
from support.expect import close, raises

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")


def numbers(array):
    return array.asnumpy().astype(np.float64)


def check_allreduce():
    size, rank = hvd.size(), hvd.rank()
    total = size * (size + 1) // 2
    for dtype in DTYPES:
        mine = mx.nd.full((3, 2), rank + 1, dtype=dtype)
        result = hvd.allreduce(mine, op=hvd.Sum)
        assert result.dtype == np.dtype(dtype).type
        close(numbers(result), np.full((3, 2), total))
        close(numbers(mine), np.full((3, 2), rank + 1))
    mine = mx.nd.full((4,), rank + 1.0)
    for op, expected in (
        (hvd.Average, total / size),
        (hvd.Min, 1),
        (hvd.Max, size),
        (hvd.Product, np.prod(range(1, size + 1))),
    ):
        close(numbers(hvd.allreduce(mine, op=op, name=f"op{op}")), np.full(4, expected))
    close(numbers(hvd.allreduce(mine)), np.full(4, total / size))
    close(
        numbers(hvd.allreduce(mine, average=False, prescale_factor=0.5, postscale_factor=3.0)), np.full(4, 1.5 * total)
    )
    same = hvd.allreduce_(mine, op=hvd.Sum)
    assert same is mine
    close(numbers(mine), np.full(4, total))
    raises(AssertionError, hvd.allreduce, mine, op=hvd.Adasum)


def check_after_asynchronous_work():
    """What MXNet's engine still computes is waited for, before and after."""
    mine = mx.nd.full((500, 500), 1.0 / 500)
    product = mine
    for _ in range(4):
        product = mx.nd.dot(product, mx.nd.ones((500, 500)) / 500)
    result = hvd.allreduce_(product + hvd.rank(), op=hvd.Sum) * 2
    expected = 2 * (hvd.size() / 500 + sum(range(hvd.size())))
    close(numbers(result), np.full((500, 500), expected), 1e-5)


def check_grouped():
    size = hvd.size()
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
        first, second = mx.nd.full((2,), hvd.rank() + 1.0), mx.nd.full((3,), 2.0)
        results = call([first, second], op=hvd.Sum)
        close(numbers(results[0]), np.full(2, size * (size + 1) / 2))
        close(numbers(results[1]), np.full(3, 2 * size))
        assert (results[0] is first) == (call is hvd.grouped_allreduce_)
    gathered = hvd.grouped_allgather([mx.nd.full((1,), hvd.rank()), mx.nd.ones((2, 2))])
    close(numbers(gathered[0]), range(size))
    assert gathered[1].shape == (2 * size, 2)
    scattered = hvd.grouped_reducescatter([mx.nd.ones((2 * size, 2))], op=hvd.Sum)
    close(numbers(scattered[0]), np.full((2, 2), size))
    assert hvd.grouped_allreduce([]) == []


def check_other_operations():
    size, rank = hvd.size(), hvd.rank()
    for dtype in DTYPES:
        gathered = hvd.allgather(mx.nd.full((rank + 1, 2), rank, dtype=dtype))
        assert gathered.dtype == np.dtype(dtype).type
        close(numbers(gathered)[:, 0], np.concatenate([[r] * (r + 1) for r in range(size)]))
        close(numbers(hvd.broadcast(mx.nd.full((2,), rank + 3, dtype=dtype), size - 1)), np.full(2, size + 2))
    mine = mx.nd.full((2,), rank + 3.0)
    hvd.broadcast_(mine, 0)
    close(numbers(mine), [3, 3])
    close(numbers(hvd.alltoall(mx.nd.arange(size) + 100 * rank)), [100 * r + rank for r in range(size)])
    rows = mx.nd.concat(*[mx.nd.full((to + 1,), 10 * rank + to) for to in range(size)], dim=0)
    for splits in ([to + 1 for to in range(size)], mx.nd.array([to + 1 for to in range(size)], dtype="int32")):
        received, counts = hvd.alltoall(rows, splits=splits)
        close(numbers(received), np.concatenate([[10 * r + rank] * (rank + 1) for r in range(size)]))
        close(numbers(counts), [rank + 1] * size)
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        part = hvd.reducescatter(mx.nd.arange(2 * size), op=op)
        close(numbers(part), factor * np.array([2 * rank, 2 * rank + 1]))
    raises(ValueError, hvd.reducescatter, mx.nd.ones((size,)), op=hvd.Max)
    assert hvd.broadcast_object({"r": rank}, root_rank=size - 1) == {"r": size - 1}
    assert hvd.allgather_object(rank) == list(range(size))


def check_errors():
    raises(TypeError, hvd.allreduce, [1.0, 2.0])
    if hvd.size() > 1:
        error = raises(hvd.HorovodInternalError, hvd.allreduce, mx.nd.ones((hvd.rank() + 1,)), name="bad")
        assert "bad" in str(error)


# --- training ------------------------------------------------------------------------------------------


def data(steps=4, rows=4):
    generator = np.random.RandomState(5)
    return [
        [
            (generator.normal(size=(rows, 3)).astype("float32"), generator.normal(size=(rows, 2)).astype("float32"))
            for _ in range(hvd.size())
        ]
        for _ in range(steps)
    ]


def network(seed=0, deferred=False):
    mx.random.seed(seed)
    net = mx.gluon.nn.Sequential()
    net.add(
        mx.gluon.nn.Dense(4, activation="tanh", in_units=0 if deferred else 3),
        mx.gluon.nn.Dense(2, in_units=0 if deferred else 4),
    )
    net.initialize(mx.init.Normal(0.5))
    return net


def train(net, trainer, batches):
    loss_of = mx.gluon.loss.L2Loss()
    for x, y in batches:
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        trainer.step(len(x))
    return [
        numbers(parameter.data())
        for _, parameter in sorted(net.collect_params().items(), key=lambda item: item[0].split("_", 1)[1])
    ]


def whole():
    net = network()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    return train(
        net, trainer, [(np.concatenate([x for x, _ in step]), np.concatenate([y for _, y in step])) for step in data()]
    )


def check_trainer():
    expected = whole()
    for options in (
        {},
        {"num_groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"prefix": "p."},
    ):
        net = network(seed=hvd.rank())
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
        trainer = hvd.DistributedTrainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **options
        )
        trained = train(net, trainer, [step[hvd.rank()] for step in data()])
        tolerance = 5e-3 if "compression" in options else 1e-5
        for actual, wanted in zip(trained, expected):
            close(actual, wanted, tolerance)


def check_deferred_initialisation():
    net = network(seed=hvd.rank(), deferred=True)
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    net(mx.nd.ones((1, 3)))
    mine = [numbers(parameter.data()) for parameter in net.collect_params().values()]
    for theirs in hvd.allgather_object(mine):
        for one, other in zip(mine, theirs):
            close(one, other)


def check_dict_of_arrays():
    params = {"a": mx.nd.full((2,), hvd.rank()), "b": mx.nd.full((3,), hvd.rank() + 1)}
    hvd.broadcast_parameters(params, root_rank=hvd.size() - 1)
    close(numbers(params["a"]), np.full(2, hvd.size() - 1))
    close(numbers(params["b"]), np.full(3, hvd.size()))
    raises(ValueError, hvd.broadcast_parameters, [mx.nd.ones((1,))])


def check_optimizer():
    for num_groups in (0, 1):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5), num_groups=num_groups)
        weight, gradient = mx.nd.ones((2,)), mx.nd.full((2,), hvd.rank() + 1.0)
        optimizer.update([0], [weight], [gradient], [optimizer.create_state(0, weight)])
        close(numbers(weight), np.full(2, 1 - 0.5 * (hvd.size() + 1) / 2))
    one = mx.nd.ones((2,))
    optimizer.update(1, one, mx.nd.full((2,), 2.0 * hvd.rank()), None)
    close(numbers(one), np.full(2, 1 - 0.5 * (hvd.size() - 1)))
    optimizer.set_learning_rate(0.25)
    assert optimizer.learning_rate == 0.25


def check_arrays_on_a_gpu():
    """Without a GPU: what the runtime learns about them, and what is called before a result is given back."""
    calls = []
    before = tensors.gpu_of, tensors.cuda_driver
    tensors.gpu_of = lambda array: 1
    tensors.cuda_driver = types.SimpleNamespace(
        copy=lambda device, to, source, size: calls.append(device) or ctypes.memmove(to, source, size)
    )
    try:
        array = mx.nd.array([[1.0, 2.0]])
        framework = tensors.framework
        assert framework.dense(array) is array
        address, shape, _, device, stream = framework.view(array)
        assert (address, shape, device, stream) == (framework.address(array), (1, 2), 1, 0)
        copied = framework.from_native(address, shape, dtypes.FLOAT32, 1, array)
        assert calls == [1] and copied.asnumpy().tolist() == [[1.0, 2.0]]
        assert framework.settler(1) is not None
        with util.env(HORA_GPU_TENSORS="host"):
            assert framework.dense(array).context == mx.cpu()
    finally:
        tensors.gpu_of, tensors.cuda_driver = before
