# SPDX-License-Identifier: Apache-2.0
"""How an operation of the runtime becomes a part of TensorFlow: at once in eager mode, as two
nodes in a graph.

The first node starts the operations and never waits; in a tf.function TensorFlow keeps such nodes
in the order of the script, so that every rank starts the same ones. The second waits. Operations
of one graph overlap that way, and no node holds up a start that another rank needs. Tensors are
passed without a copy on the CPU; gpu_nodes says how they are on a GPU.
"""

from __future__ import annotations

import sys
import weakref

import numpy as np
import tensorflow as tf

from hora import batches
from hora.exceptions import TensorMismatchError
from horovod.tensorflow import errors, gpu_nodes
from horovod.tensorflow.tensors import as_array, as_output, known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from hora.operations import Pending

# One wait inside the library; a lost job is noticed after it.
_SLICE_SECONDS = 0.5


def run(
    begin: Callable[..., Iterable[Pending]], tensors: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]
) -> Any:
    """begin(*arrays) yields operations (hora.operations.Pending) on the tensors' arrays; returns
    all of their results as tensors, of these dtypes and (partly known) shapes."""
    if tf.executing_eagerly():
        results = _finish_now(lambda: batches.run(begin, *map(as_array, tensors)))
        like = tensors[0] if tensors else None
        return [as_output(result, like) for result in results]
    return _add_nodes([(begin, tensors)], dtypes, shapes)


def run_parts(parts: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]) -> Any:
    """run() for several (begin, tensors) whose results are wanted together. In a graph each part
    starts as soon as its own tensors are there."""
    if tf.executing_eagerly():
        like = next((tensors[0] for _, tensors in parts if tensors), None)
        batch = batches.Batch()
        for begin, tensors in parts:
            batch.start(begin, *map(as_array, tensors))
        return [as_output(result, like) for result in _finish_now(batch.finish)]
    return _add_nodes(parts, dtypes, shapes)


def _finish_now(finish):
    try:
        return finish()
    except errors.CONVERTED as error:
        raise errors.in_tensorflow(error) from None


class _Site:
    """One place in a graph: what each of its parts started last. A run of the graph that failed
    half-way leaves a batch behind, which the next run drops."""

    def __init__(self, parts, dtypes):
        self.batches = [batches.Batch() for _ in range(parts)]
        self.dtypes = dtypes

    def starter(self, part, begin):
        def start(*arrays):
            self.batches[part].drop()
            self.batches[part] = batches.Batch()
            self.batches[part].start(begin, *arrays)
            return np.int32(0)

        return tf.autograph.experimental.do_not_convert(start)

    def wait(self, *_):
        for batch in self.batches:
            while not batch.wait(_SLICE_SECONDS):
                pass
        return np.int32(0)

    def finish(self, *_):
        """The results, and the path for errors.checked()."""
        try:
            return [*map(known, batches.finish_all(self.batches)), errors.path_of(None)]
        except TensorMismatchError as error:
            nothing = [np.zeros(0, dtype.as_numpy_dtype) for dtype in self.dtypes]
            return [*nothing, errors.path_of(error)]


def _refuse_xla():
    """XLA cannot call out of what it compiles, and says so late and in its own terms. Only the functions that are
    being traced know that they will be compiled."""
    frame = sys._getframe()
    while frame is not None:
        function = frame.f_locals.get("self")
        in_tensorflow = frame.f_globals.get("__name__", "").startswith("tensorflow.python.eager.")
        if in_tensorflow and getattr(function, "_jit_compile", None) is True:
            name = getattr(getattr(function, "python_function", None), "__name__", "a function")
            raise NotImplementedError(  # AutoGraph would replace an error of ours by its own
                f"{name} is compiled by XLA (jit_compile=True), which cannot communicate. Call the collectives "
                "outside of it: compile the forward and backward pass, and reduce the gradients in the function "
                "around it; in Keras pass jit_compile=False to compile()"
            )
        frame = frame.f_back


def _add_nodes(parts, dtypes, shapes):
    _refuse_xla()
    in_function = getattr(tf.compat.v1.get_default_graph(), "building_function", False)
    gpu = gpu_nodes.device_for([each for _, tensors in parts for each in tensors], dtypes) if in_function else None
    results = gpu_nodes.add(gpu, parts, dtypes) if gpu else _add_host_nodes(parts, dtypes, in_function)
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return list(results)


def _add_host_nodes(parts, dtypes, in_function):
    site = _Site(len(parts), dtypes)
    started = [
        tf.numpy_function(site.starter(part, begin), tensors, tf.int32, name="HoraStart")
        for part, (begin, tensors) in enumerate(parts)
    ]
    if not in_function:
        started = [_wait_elsewhere(site, started)]
    *results, path = tf.numpy_function(
        tf.autograph.experimental.do_not_convert(site.finish),
        started,
        [*dtypes, tf.string],
        stateful=False,
        name="HoraFinish",
    )
    return errors.checked(results, path)


def _wait_elsewhere(site, started):
    """A Session runs nodes in any order on few threads: nodes that wait there could keep the
    threads that the starts need which the other ranks wait for. A dataset of one element has a
    thread of its own, and its node waits without any."""
    waited = tf.data.Dataset.from_tensors(tf.stack(started)).map(
        lambda marks: tf.numpy_function(site.wait, [marks], tf.int32)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return tf.data.Dataset.get_single_element(waited.with_options(options))


_prefixes: Any = weakref.WeakKeyDictionary()  # graph -> {prefix: how often it has been asked for}


def numbered_prefix(prefix: str) -> str:
    """The prefix for the names of gradients that are reduced together; with a number behind it where the
    graph under construction has some of that prefix before: of another tape, another optimizer."""
    if tf.executing_eagerly():
        return prefix  # one after the other
    counts = _prefixes.setdefault(tf.compat.v1.get_default_graph(), {})
    counts[prefix] = counts.get(prefix, 0) + 1
    return prefix if counts[prefix] == 1 else f"{prefix}_{counts[prefix]}"


def unique_name(name: str) -> str:
    """A name that no other operation of the graph under construction has; the same one on every
    rank that builds the same graph. Made-up eager names are left to the runtime."""
    if tf.executing_eagerly():
        return name
    return tf.compat.v1.get_default_graph().unique_name(name)
