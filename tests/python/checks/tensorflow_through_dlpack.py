# SPDX-License-Identifier: Apache-2.0
"""Loaded before the checks of horovod.tensorflow, this has them take the way of tensors in GPU memory, on the CPU:
DLPack in and out, and Python functions with eager tensors in graphs. What is different on a GPU (streams, the
driver) is in device_arrays_on_gpu_double.py."""

import tensorflow as tf

import horovod.tensorflow as hvd
from hora import device_arrays
from horovod.tensorflow import gpu_nodes, tensors

TYPES = {
    tf.as_dtype(name)
    for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
}
taken = {"eager": 0, "graph": 0}


def _is_on_gpu(tensor):
    taken["eager"] += 1
    return tensor.dtype in TYPES


def _device_for(inputs, dtypes):
    chosen = device_for(inputs, dtypes)
    taken["graph"] += chosen is not None
    return chosen and "/CPU:0"


device_for = gpu_nodes.device_for
tensors.is_on_gpu = _is_on_gpu
gpu_nodes.keeps_gpu_tensors = lambda: True
gpu_nodes.device_for = _device_for


def check_the_way():
    array = tensors.as_array(tf.constant([[1.0, 2.0]]))
    assert type(array) is device_arrays.DeviceArray and array.shape == (1, 2)
    before = dict(taken)
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == hvd.size()
    assert float(tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.constant(1.0))) == hvd.size()
    assert taken["eager"] > before["eager"] and taken["graph"] == before["graph"] + 1


def check_results_have_memory_of_their_own():
    """tf.zeros() gives small tensors out twice, and results are written into what a Source makes."""
    like = tf.zeros([2])
    made = [tensors.source.fresh([2], "float32", like) for _ in range(3)]
    arrays = [device_arrays.DeviceArray(each, tensors.source) for each in [*made, like, tf.zeros([2])]]
    assert len({array.address for array in arrays[:4]}) == 4
    for shape in ([], [0, 3], [1], [2, 3, 4]):
        for dtype in TYPES | {tf.bool}:
            assert tensors.source.fresh(shape, dtype.name, like).shape == shape


def check_which_operations_of_a_graph_stay_on_the_gpu():
    """The decision, as if there was one."""
    devices = []

    def ask(*inputs, place=""):
        with tf.device(place or None):
            devices.append(device_for(inputs, [each.dtype for each in inputs]))

    @tf.function
    def graph(x, whole):
        ask(x)
        ask(x, tf.cast(x, tf.bfloat16))
        ask(x, whole)
        ask(x, place="CPU:0")
        with tf.device("CPU:0"):
            there = x + 1
        ask(there)
        ask(x, place="GPU:1")

    graph(tf.constant(1.0), tf.constant(1))
    assert devices[:5] == ["/GPU:0", "/GPU:0", None, None, None], devices
    assert devices[5].endswith("GPU:1"), devices
