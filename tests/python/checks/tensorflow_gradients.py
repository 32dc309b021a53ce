# SPDX-License-Identifier: Apache-2.0
"""Gradients of horovod.tensorflow, DistributedGradientTape and optimizers, against what one process
computes that holds every rank's data."""

import os

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from support.expect import close, raises


def modes(function):
    return function, tf.function(function)


def inputs(shape):
    generator = np.random.default_rng(7)
    return [tf.constant(generator.uniform(0.5, 1.5, shape)) for _ in range(hvd.size())]


def weights(shapes):
    generator = np.random.default_rng(11)
    return [tf.constant(generator.uniform(0.5, 1.5, shape)) for shape in shapes]


def own(values):
    return values[hvd.rank()]


def reference(tensors, function, loss_weights):
    """Gradients of sum over ranks of (weights_r * output_r) with respect to every tensor;
    function maps all tensors to the list of all ranks' outputs."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = tf.add_n([tf.reduce_sum(w * y) for w, y in zip(loss_weights, function(tensors))])
    return tape.gradient(loss, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def gradient_of(function, tensor):
    """d function(tensor) / d tensor, in eager mode and in a graph."""

    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = function(x)
        return tape.gradient(loss, x)

    return [call(tensor) for call in modes(compute)]


def check_allreduce():
    shape = (3, 2)
    tensors, loss_weights = inputs(shape), weights([shape] * hvd.size())
    combine = {
        hvd.Sum: lambda xs: tf.add_n(xs),
        hvd.Average: lambda xs: tf.add_n(xs) / len(xs),
        hvd.Max: lambda xs: tf.reduce_max(tf.stack(xs), 0),
        hvd.Min: lambda xs: tf.reduce_min(tf.stack(xs), 0),
        hvd.Product: lambda xs: tf.reduce_prod(tf.stack(xs), 0),
    }
    for op, function in combine.items():
        for before, after in ((1.0, 1.0), (0.5, 3.0)):
            expected = reference(
                tensors, lambda xs: [function([x * before for x in xs]) * after] * hvd.size(), loss_weights
            )
            for gradient in gradient_of(
                lambda x: tf.reduce_sum(
                    own(loss_weights)
                    * hvd.allreduce(x, op=op, prescale_factor=before, postscale_factor=after, name=f"g{op}")
                ),
                own(tensors),
            ):
                close(gradient, own(expected), 1e-9)


def check_grouped_allreduce():
    tensors, loss_weights = inputs((4,)), weights([(4,)] * hvd.size())
    expected = reference(tensors, lambda xs: [tf.add_n(xs) / len(xs)] * hvd.size(), loss_weights)

    def loss(x):
        first, second = hvd.grouped_allreduce([x, 3 * x])
        return tf.reduce_sum((first + second) * own(loss_weights))

    for gradient in gradient_of(loss, own(tensors)):
        close(gradient, 4 * own(expected), 1e-9)


def check_second_derivative():
    mine = own(inputs((3,)))

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x**3, op=hvd.Sum))
        return tf.reduce_sum(tape.gradient(loss, x))

    for gradient in gradient_of(slope, mine):
        close(gradient, hvd.size() * 6 * mine, 1e-9)


def check_allgather():
    # Horovod's convention: averaged over the ranks, where plain differentiation would add up.
    size = hvd.size()
    tensors = weights([(rank + 1, 2) for rank in range(size)])
    loss_weights = weights([(size * (size + 1) // 2, 2)] * size)
    expected = reference(tensors, lambda xs: [tf.concat(xs, 0)] * size, loss_weights)
    for gradient in gradient_of(lambda x: tf.reduce_sum(hvd.allgather(x) * own(loss_weights)), own(tensors)):
        close(gradient, own(expected) / size, 1e-9)

    def grouped(x):
        first, second = hvd.grouped_allgather([x, x])
        return tf.reduce_sum((first - 3 * second) * own(loss_weights))

    for gradient in gradient_of(grouped, own(tensors)):
        close(gradient, -2 * own(expected) / size, 1e-9)


def check_broadcast():
    tensors, loss_weights = inputs((3,)), weights([(3,)] * hvd.size())
    for root in range(hvd.size()):
        expected = reference(tensors, lambda xs: [xs[root]] * hvd.size(), loss_weights)
        for gradient in gradient_of(lambda x: tf.reduce_sum(hvd.broadcast(x, root) * own(loss_weights)), own(tensors)):
            close(gradient, own(expected) / hvd.size(), 1e-9)


def check_alltoall():
    size, rank = hvd.size(), hvd.rank()
    splits = [to + 1 for to in range(size)]
    tensors = inputs((sum(splits) + 1, 2))  # the last row is not sent
    starts = np.cumsum([0, *splits])

    def exchange(xs):
        return [tf.concat([x[starts[to] : starts[to + 1]] for x in xs], 0) for to in range(size)]

    loss_weights = weights([(size * (to + 1), 2) for to in range(size)])
    expected = reference(tensors, exchange, loss_weights)
    for gradient in gradient_of(lambda x: tf.reduce_sum(hvd.alltoall(x, splits)[0] * own(loss_weights)), own(tensors)):
        close(gradient, own(expected), 1e-9)
    loss_weights = weights([(size, 2)] * size)
    for gradient in gradient_of(lambda x: tf.reduce_sum(hvd.alltoall(x) * own(loss_weights)), inputs((size, 2))[rank]):
        close(gradient, np.stack([np.asarray(each)[rank] for each in loss_weights]), 1e-9)


def check_reducescatter():
    # Horovod's convention: as often the size of the set as plain differentiation gives.
    size = hvd.size()
    tensors, loss_weights = inputs((2 * size, 2)), weights([(2, 2)] * size)
    for op, scale in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / size)):
        expected = reference(
            tensors, lambda xs: [(tf.add_n(xs) * scale * 0.5)[2 * to : 2 * to + 2] for to in range(size)], loss_weights
        )
        for gradient in gradient_of(
            lambda x: tf.reduce_sum(own(loss_weights) * hvd.reducescatter(x, op=op, prescale_factor=0.5)), own(tensors)
        ):
            close(gradient, own(expected) * size, 1e-9)


def check_compression_passes_gradients():
    for gradient in gradient_of(
        lambda x: tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16)), tf.ones(4)
    ):
        close(gradient, np.full(4, hvd.size()))


# --- tapes -------------------------------------------------------------------------------------------


def two_layers(seed=0):
    generator = np.random.default_rng(seed)
    return [tf.Variable(generator.normal(size=shape).astype(np.float32)) for shape in ((4, 3), (3,), (3, 2), (2,))]


def batches(count=3, rows=4):
    """For each step, every rank's rows."""
    generator = np.random.default_rng(5)
    return [
        [
            (generator.normal(size=(rows, 4)).astype(np.float32), generator.normal(size=(rows, 2)).astype(np.float32))
            for _ in range(hvd.size())
        ]
        for _ in range(count)
    ]


def loss_of(parameters, x, y):
    hidden = tf.tanh(x @ parameters[0] + parameters[1])
    return tf.reduce_mean((hidden @ parameters[2] + parameters[3] - y) ** 2)


def whole_gradients(parameters, step):
    x = np.concatenate([x for x, _ in step])
    y = np.concatenate([y for _, y in step])
    with tf.GradientTape() as tape:
        loss = loss_of(parameters, x, y)
    return tape.gradient(loss, parameters)


def check_tape():
    parameters = two_layers()
    step = batches(1)[0]
    x, y = own(step)
    expected = whole_gradients(parameters, step)
    for options in (
        {},
        {"groups": 2},
        {"groups": [parameters[:2]]},
        {"num_groups": 3},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Sum},
    ):

        def compute(x, y):
            with tf.GradientTape() as plain:
                loss = loss_of(parameters, x, y)
            tape = hvd.DistributedGradientTape(plain, **options)
            assert isinstance(tape, tf.GradientTape)
            return tape.gradient(loss, parameters)

        factor = hvd.size() if options.get("op") == hvd.Sum else 1
        tolerance = 2e-3 if "compression" in options else 1e-5
        for call in modes(compute):
            for actual, wanted in zip(call(x, y), expected):
                close(actual, factor * wanted, tolerance)
    raises(ValueError, hvd.DistributedGradientTape, tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)


def check_two_tapes_in_one_function():
    """As a generator and its critic: both sets of gradients are under way together."""
    first, second = two_layers(), two_layers(1)
    step = batches(1)[0]

    @tf.function
    def compute(x, y):
        with tf.GradientTape() as one, tf.GradientTape() as other:
            losses = loss_of(first, x, y), loss_of(second, x, y)
        tapes = [hvd.DistributedGradientTape(tape) for tape in (one, other)]
        return tapes[0].gradient(losses[0], first), tapes[1].gradient(losses[1], second)

    for _ in range(10):
        for actual, parameters in zip(compute(*own(step)), (first, second)):
            for each, wanted in zip(actual, whole_gradients(parameters, step)):
                close(each, wanted, 1e-5)


def check_tape_as_context_and_structures():
    parameters = two_layers()
    step = batches(1)[0]
    x, y = own(step)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = loss_of(parameters, x, y)
    expected = whole_gradients(parameters, step)
    single = tape.gradient(loss, parameters[0])
    close(single, expected[0], 1e-5)
    named = tape.gradient(loss, {"a": parameters[1], "b": [parameters[2]]})
    close(named["a"], expected[1], 1e-5)
    close(named["b"][0], expected[2], 1e-5)
    unused = tf.Variable(1.0)
    first, none = tape.gradient(loss, [parameters[0], unused])
    close(first, expected[0], 1e-5)
    assert none is None


def check_tape_with_local_sources():
    parameters = two_layers()
    step = batches(1)[0]
    x, y = own(step)
    with tf.GradientTape(persistent=True) as plain:
        loss = loss_of(parameters, x, y)
    alone = plain.gradient(loss, parameters)
    expected = whole_gradients(parameters, step)
    for scaled in (True, False):
        tape = hvd.DistributedGradientTape(plain, scale_local_gradients=scaled)
        tape.register_local_source(parameters[0])
        gradients = tape.gradient(loss, parameters)
        close(gradients[0], alone[0] / (hvd.size() if scaled else 1), 1e-5)
        close(gradients[1], expected[1], 1e-5)
        local, everywhere = tape.get_local_and_global_gradients(loss, parameters)
        assert [variable is each for (variable, _), each in zip(local, parameters[:1])] == [True]
        assert [variable is each for (variable, _), each in zip(everywhere, parameters[1:])] == [True] * 3
        close(local[0][1], gradients[0], 1e-5)
        close(everywhere[-1][1], expected[-1], 1e-5)

    class Layer:
        trainable_weights = [parameters[0], parameters[1]]

    partial = hvd.PartialDistributedGradientTape(plain, local_layers=Layer())
    close(partial.gradient(loss, parameters)[1], alone[1] / hvd.size(), 1e-5)
    raises(ValueError, hvd.PartialDistributedGradientTape, plain, local_layers=3)


def check_invalid_process_sets():
    for wrong in (None, 0):
        for call in (
            lambda: hvd.DistributedGradientTape(tf.GradientTape(), process_set=wrong),
            lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), process_set=wrong),
            lambda: hvd.alltoall(tf.ones(hvd.size()), process_set=wrong),
        ):
            error = raises(TypeError, call)
            assert f"process_set={wrong}: expected a ProcessSet" in str(error), error


def check_tape_with_sparse_gradients():
    size = hvd.size()
    table = tf.Variable(np.arange(20, dtype=np.float32).reshape(10, 2))
    rows = [tf.constant([rank, rank, 9]) for rank in range(size)]
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(tf.gather(table, each) ** 2) for each in rows]) / size
    expected = tf.convert_to_tensor(tape.gradient(loss, table))
    for options, kind in (
        ({}, tf.IndexedSlices),
        ({"sparse_as_dense": True}, tf.Tensor),
        ({"compression": hvd.Compression.fp16}, tf.IndexedSlices),
    ):

        def compute(indices):
            with tf.GradientTape() as plain:
                loss = tf.reduce_sum(tf.gather(table, indices) ** 2)
            gradient = hvd.DistributedGradientTape(plain, **options).gradient(loss, table)
            if size > 1:
                assert isinstance(gradient, kind), type(gradient)
            return tf.convert_to_tensor(gradient)

        for call in modes(compute):
            close(call(own(rows)), expected, 2e-3 if "compression" in options else 1e-5)


def check_training_is_the_same():
    """Trained on all ranks' rows in one process, and on each rank's own with the tape."""
    whole, part = two_layers(), two_layers(seed=hvd.rank())
    hvd.broadcast_variables(part, root_rank=0)

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(part, x, y)
        tape = hvd.DistributedGradientTape(tape)
        for variable, gradient in zip(part, tape.gradient(loss, part)):
            variable.assign_sub(0.1 * gradient)
        return hvd.allreduce(loss, name="loss")

    for step in batches(5):
        everything = loss_of(whole, np.concatenate([x for x, _ in step]), np.concatenate([y for _, y in step]))
        for variable, gradient in zip(whole, whole_gradients(whole, step)):
            variable.assign_sub(0.1 * gradient)
        close(train(*own(step)), everything, 1e-5)
    for mine, theirs in zip(part, whole):
        close(mine, theirs, 1e-5)


# --- optimizers of tf.compat.v1.train ----------------------------------------------------------------


def check_legacy_optimizer_in_a_session():
    steps = batches(6)
    whole = two_layers()
    for passes, op, averaged in (
        (1, hvd.Average, False),
        (2, hvd.Average, True),
        (2, hvd.Sum, False),
        (1, hvd.Average, False),
    ):
        expected = [variable.numpy() for variable in whole]
        reference = [tf.Variable(value) for value in expected]
        for start in range(0, len(steps), passes):
            sums = None
            for step in steps[start : start + passes]:
                gradients = whole_gradients(reference, step)
                sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients)]
            factor = (hvd.size() if op == hvd.Sum else 1) / (passes if averaged else 1)
            for variable, gradient in zip(reference, sums):
                variable.assign_sub(0.1 * factor * gradient)
        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, [None, 4])
            y = tf.compat.v1.placeholder(tf.float32, [None, 2])
            variables = [
                tf.compat.v1.get_variable(f"v{index}", initializer=tf.constant(value + hvd.rank()))
                for index, value in enumerate(expected)
            ]
            loss = loss_of(variables, x, y)
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.1),
                op=op,
                backward_passes_per_step=passes,
                average_aggregated_gradients=averaged,
            )
            train = optimizer.minimize(loss, global_step=None)
            hook = hvd.BroadcastGlobalVariablesHook(0)
            with tf.compat.v1.train.SingularMonitoredSession(hooks=[hook]) as session:
                for step in steps:
                    mine = own(step)
                    session.run(train, {x: mine[0], y: mine[1]})
                trained = session.raw_session().run(variables)
        for actual, wanted in zip(trained, reference):
            close(actual, wanted, 1e-5)


def check_legacy_optimizer_eagerly():
    raises(
        ValueError,
        hvd.DistributedOptimizer,
        tf.compat.v1.train.GradientDescentOptimizer(0.1),
        backward_passes_per_step=2,
    )
    variable = tf.Variable(tf.fill([2], float(hvd.rank() + 1)))
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.MomentumOptimizer(0.5, 0.9))
    start = variable.numpy()
    optimizer.minimize(lambda: tf.reduce_sum(variable**2), var_list=[variable])
    mean = np.mean([2.0 * (rank + 1) for rank in range(hvd.size())])
    close(variable, start - 0.5 * mean)
    assert optimizer.get_slot_names() == ["momentum"]
    assert optimizer.get_slot(variable, "momentum") is not None


def check_operations_of_a_session():
    """Many operations on few threads, in any order."""
    graph = tf.Graph()
    with graph.as_default():
        results = [hvd.allreduce(tf.fill([2], float(index)), op=hvd.Sum) for index in range(12)]
        received, splits = hvd.alltoall(tf.range(hvd.size()), splits=[1] * hvd.size())
        last = hvd.broadcast(tf.constant(float(hvd.rank())), hvd.size() - 1)
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant(float(hvd.rank() + 3)))
        broadcast = hvd.broadcast_global_variables(0)
        settings = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=settings) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(3):
                values, (rows, counts), broadcasted = session.run([results, (received, splits), last])
                for index, value in enumerate(values):
                    close(value, np.full(2, index * hvd.size()))
                assert rows.tolist() == [hvd.rank()] * hvd.size() and counts.sum() == hvd.size()
                close(broadcasted, hvd.size() - 1)
            session.run(broadcast)
            close(session.run(variable), 3.0)
    raises(RuntimeError, hvd.broadcast_global_variables, 0)


def check_adasum_of_legacy_optimizer():
    if hvd.size() > 1:
        try:
            hvd.allreduce(tf.ones(2), op=hvd.Adasum, name="probe")
        except (hvd.HorovodInternalError, ValueError) as error:
            if "adasum" not in str(error).lower():
                raise
            raise Skip(f"the runtime has no Adasum here: {error}") from None
    graph = tf.Graph()
    with graph.as_default():
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant([1.0, 1.0]))
        gradient = tf.constant([1.0, 0.0] if hvd.rank() % 2 == 0 else [0.0, 1.0])
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.25), op=hvd.Adasum)
        train = optimizer.apply_gradients([(gradient, variable)])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train)
            # Equal gradients are averaged, orthogonal ones added.
            expected = [0.75, 1.0] if hvd.size() == 1 else [0.75, 0.75]
            close(session.run(variable), expected)


class Skip(Exception):
    pass


def check_elastic_state():
    raises(hvd.HostsUpdatedInterrupt, _check_host_changes)
    _check_elastic_state()


def _check_host_changes():
    state = hvd.elastic.TensorFlowState(two_layers(seed=0))
    state.on_hosts_updated(1, 1)
    state.commit()


def _check_elastic_state():
    variables = two_layers(seed=hvd.rank())
    state = hvd.elastic.TensorFlowState(variables, epoch=hvd.rank(), batch=7)
    state.sync()
    assert state.epoch == 0 and state.batch == 7
    for mine, theirs in zip(variables, two_layers(seed=0)):
        close(mine, theirs)
    variables[0].assign(variables[0] + 1)
    state.epoch = 3
    state.restore()
    assert state.epoch == 0
    close(variables[0], two_layers(seed=0)[0])
    variables[0].assign(variables[0] + 1)
    state.epoch = 3
    state.commit()
    variables[0].assign(variables[0] * 0)
    state.restore()
    assert state.epoch == 3
    close(variables[0], two_layers(seed=0)[0] + 1)

    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(state.epoch)
        return "trained"

    assert train(state) == "trained" and calls == [3]


def check_elastic_gets_errors_of_graphs():
    from horovod.tensorflow.elastic import _translate

    if hvd.size() == 1:
        return
    try:
        tf.function(lambda: hvd.allreduce(tf.ones(hvd.rank() + 1), name="bad"))()
    except tf.errors.OpError as error:
        ours = _translate(error)
        assert isinstance(ours, hvd.HorovodInternalError) and not ours.recoverable, repr(ours)
        return
    raise AssertionError("no error")


def check_a_graph_outlives_its_ranks():
    """In an elastic job a function that was traced for some ranks is run by others."""
    place = {
        f"HOROVOD_{name}": os.environ[f"HOROVOD_{name}"]
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    }
    size, table = hvd.size(), tf.Variable(tf.ones((3, 2)))

    @tf.function
    def compute(rows):
        with tf.GradientTape(persistent=True) as plain:
            sparse = tf.reduce_sum(tf.gather(table, rows))
            gathered = tf.reduce_sum(hvd.allgather(table, name="table") * 3.0)
            spread = tf.reduce_sum(hvd.broadcast(table, 0, name="spread"))
        tape = hvd.DistributedGradientTape(plain)
        reduced = tf.convert_to_tensor(tape.gradient(sparse, table))
        lone = tf.convert_to_tensor(hvd.allreduce(plain.gradient(sparse, table), name="lone"))
        return (
            reduced,
            lone,
            plain.gradient(gathered, table),
            plain.gradient(spread, table),
            hvd.alltoall(tf.range(4 * size), name="even"),
        )

    def run():
        return [numbers.numpy() for numbers in compute(tf.constant([0, 0]))]

    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        for each in run()[:2]:
            close(each, [[2, 2], [0, 0], [0, 0]])
    finally:
        del os.environ["HOROVOD_ELASTIC"]
    hvd.shutdown()
    try:
        os.environ.update({name: str(int(name.endswith("SIZE"))) for name in place})
        hvd.init()
        reduced, lone, gathered, spread, even = run()
        hvd.shutdown()
    finally:
        os.environ.update(place)
    hvd.init()
    assert hvd.size() == size
    for each in (reduced, lone):
        close(each, [[2, 2], [0, 0], [0, 0]])
    close(gathered, np.full((3, 2), 3.0))
    close(spread, np.ones((3, 2)))
    close(even, np.arange(4 * size))


def check_elastic_job_of_one_step():
    """HOROVOD_ELASTIC makes even a world of one reduce: it may have grown when the graph runs."""
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        parameters = two_layers()
        step = batches(1)[0]
        with tf.GradientTape() as tape:
            loss = loss_of(parameters, *own(step))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, parameters)
    finally:
        del os.environ["HOROVOD_ELASTIC"]
    for actual, wanted in zip(gradients, whole_gradients(parameters, step)):
        close(actual, wanted, 1e-5)


def check_two_gradients_through_one_operation():
    """Of one node of a graph, and in eager mode: each is an operation of its own."""
    size = hvd.size()
    operations = {
        "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum, name="twice.allreduce"),
        "max": lambda x: hvd.allreduce(x, op=hvd.Max, name="twice.max"),
        "grouped": lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, name="twice.grouped")),
        "allgather": lambda x: hvd.allgather(x, name="twice.allgather"),
        "broadcast": lambda x: hvd.broadcast(x, 0, name="twice.broadcast"),
        "alltoall": lambda x: hvd.alltoall(x, name="twice.alltoall"),
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name="twice.reducescatter"),
    }
    for kind, operation in operations.items():

        def losses(x, operation=operation):
            result = operation(x)
            return tf.reduce_sum(result), tf.reduce_sum(3.0 * result)

        def by_persistent_tape(x, losses=losses):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                first, second = losses(x)
            return tape.gradient(first, x), tape.gradient(second, x)

        def by_tf_gradients(x, losses=losses):
            first, second = losses(x)
            return tf.gradients(first, x)[0], tf.gradients(second, x)[0]

        x = tf.range(2.0 * size)
        for call in (by_persistent_tape, tf.function(by_persistent_tape), tf.function(by_tf_gradients)):
            for _ in range(3):
                one, three = call(x)
                close(three, 3.0 * one.numpy(), 1e-5)
        if kind == "allreduce":
            close(one, [size] * 2 * size)


def check_functions_that_xla_compiles():
    """Communication in them is refused when they are traced; around them it works."""

    @tf.function(jit_compile=True)
    def compiled(x):
        return hvd.allreduce(x)

    error = raises(NotImplementedError, compiled, tf.ones(3))
    assert "compiled is compiled by XLA" in str(error) and "outside of it" in str(error), str(error)
    outer = tf.function(lambda x: compiled(x) + 1)
    raises(NotImplementedError, outer, tf.ones(3))

    @tf.function(jit_compile=True)
    def gradient(x):
        return 2.0 * x

    step = tf.function(lambda x: hvd.allreduce(gradient(x), op=hvd.Sum, name="around"))
    close(step(tf.ones(3)), [2 * hvd.size()] * 3)
