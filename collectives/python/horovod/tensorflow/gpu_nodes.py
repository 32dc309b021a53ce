# SPDX-License-Identifier: Apache-2.0
"""The nodes of an operation on tensors in GPU memory, in a tf.function.

They are Python functions that TensorFlow places on the GPU: those get tensors where they are, while the NumPy
functions of execution.py get copies on the host. Only floating-point tensors: TensorFlow keeps most integers of a
graph in host memory.
"""

from __future__ import annotations

import tensorflow as tf

from hora import batches
from hora.exceptions import TensorMismatchError
from horovod.tensorflow import errors
from horovod.tensorflow.tensors import as_array, as_output, keeps_gpu_tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_FLOATING = frozenset((tf.float16, tf.bfloat16, tf.float32, tf.float64))


def _order_of(graph):
    """What keeps the nodes of a tf.function in the order of the script; None where it has no such thing."""
    return getattr(graph, "experimental_acd_manager", None)


def device_for(tensors: Sequence[Any], dtypes: Sequence[Any]) -> str | None:
    """The GPU for the nodes of an operation on these tensors of a graph; None if they belong on the host."""
    if not keeps_gpu_tensors() or not _FLOATING.issuperset([*dtypes, *(tensor.dtype for tensor in tensors)]):
        return None
    if not hasattr(_order_of(tf.compat.v1.get_default_graph()), "run_independently"):
        return None
    chosen = tf.no_op().device  # that of a `with tf.device(...)` around the call: device_dense= is one, too
    if any("CPU" in device for device in (chosen, *(tensor.device for tensor in tensors))):
        return None
    return chosen if "GPU" in chosen else "/GPU:0"


class _Site:
    """One place in a graph: what each of its parts started last. A run of the graph that failed half-way leaves a
    batch behind, which the next run drops."""

    def __init__(self, parts, dtypes):
        self.batches = [batches.Batch() for _ in range(parts)]
        self.dtypes = dtypes
        self.error: TensorMismatchError | None = None

    def starter(self, part, begin):
        def start(*tensors):
            self.batches[part].drop()
            self.batches[part] = batches.Batch()
            self.batches[part].start(begin, *map(as_array, tensors))
            return tf.zeros([], tf.float32)

        return start

    def finish(self, mark):
        self.error = None
        try:
            return [as_output(result, mark) for result in batches.finish_all(self.batches)]
        except TensorMismatchError as error:
            self.error = error
            return [tf.zeros([0], dtype) for dtype in self.dtypes]

    def path(self, _):
        """For errors.checked(): text cannot be on a GPU."""
        return errors.path_of(self.error)


def add(device: str, parts: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """The results of the parts, (begin, tensors) each, as execution.run_parts() takes them."""
    site = _Site(len(parts), dtypes)
    with tf.device(device):
        started = [
            tf.py_function(site.starter(part, begin), tensors, tf.float32, name="HoraStart")
            for part, (begin, tensors) in enumerate(parts)
        ]
        for mark in started:
            mark.set_shape([])  # TensorFlow knows nothing of what a Python function returns
        results = tf.py_function(site.finish, [tf.add_n(started)], list(dtypes), name="HoraFinish")
        # Otherwise each start would come after the waits before it, and ranks write them in different orders.
        _order_of(tf.compat.v1.get_default_graph()).run_independently(results[0].op)
        done = tf.add_n([tf.cast(tf.size(result), tf.float32) for result in results])
    with tf.device("CPU:0"):
        path = tf.numpy_function(tf.autograph.experimental.do_not_convert(site.path), [done], tf.string, stateful=False)
    return errors.checked(results, path)
