# SPDX-License-Identifier: Apache-2.0
"""Tensors in GPU memory that are read through DLPack, down to the nccl backend, on the doubles of the CUDA and NCCL
libraries (tests/support/gpu_double). The framework is a double, too: it works on a stream of its own, numbers its
device 0 whichever it is, and writes rubbish into memory that it has got back."""

import ctypes
import gc
import os
import threading

import numpy as np

import hora.numpy as hvd
from hora import _calls, basics, batches, cuda_driver, device_arrays, dlpack, operations
from hora.aligned_arrays import ops
from hora.device_arrays import DeviceArray
from support import dlpack_capsules
from support.expect import raises

DEVICE = int(os.environ.get("HOROVOD_LOCAL_RANK", 0)) % int(os.environ.get("HORA_DOUBLE_DEVICES", 1))
WORLD = hvd.global_process_set

_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_functions = []  # what streams may still call
_KINDS = {"float32": (dlpack.FLOAT, 32), "int16": (dlpack.INT, 16)}


def _run_on(stream, function):
    host_function = _HostFunction(lambda _: function())
    _functions.append(host_function)
    cuda_driver._call("cuLaunchHostFunc", stream, host_function, None)


class Tensor:
    """Of the double of a framework."""

    def __init__(self, shape, dtype="float32"):
        self.shape, self.dtype = tuple(shape), dtype
        self.size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        place = ctypes.c_uint64()
        if self.size:
            with cuda_driver._current(DEVICE):
                cuda_driver._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(self.size))
        self.address = place.value

    def __del__(self):
        if self.address:
            ctypes.memset(self.address, 0xEE, self.size)

    def values(self):
        """What the host would see now."""
        raw = (ctypes.c_char * self.size).from_address(self.address) if self.size else b""
        return np.frombuffer(bytes(raw), self.dtype).reshape(self.shape)


class Source(device_arrays.Source):
    exported = 0

    def export(self, tensor):
        Source.exported += 1
        return dlpack_capsules.capsule(
            tensor.address, tensor.shape, _KINDS[tensor.dtype], (dlpack.CUDA, 0), ended=lambda: tensor and None
        )

    def dtype_name(self, tensor):
        return tensor.dtype

    def fresh(self, shape, dtype, like):
        return Tensor(shape, dtype)


source = Source()


def on_gpu(values):
    tensor = Tensor(values.shape, values.dtype.name)
    if tensor.size:
        ctypes.memmove(tensor.address, np.ascontiguousarray(values).ctypes.data, tensor.size)
    return DeviceArray(tensor, source)


def own(count=4):
    return np.arange(count, dtype=np.float32).reshape(-1, 2) + 10 * hvd.rank()


def everyone(count=4):
    return [np.arange(count, dtype=np.float32).reshape(-1, 2) + 10 * rank for rank in range(hvd.size())]


def run(begin, *arrays):
    """As horovod.tensorflow and hora.jax do it: the values of the results' tensors."""
    return [
        result.tensor.values() if isinstance(result, DeviceArray) else result for result in batches.run(begin, *arrays)
    ]


def sum_of(arrays, name, **named):
    yield ops.allreduce(arrays, name, hvd.Sum, 1.0, 1.0, WORLD, **named)


def check_the_backend():
    backends = basics.describe()["backends"]
    assert any(each["id"] == "nccl" and each["usable"] for each in backends), backends


def check_the_driver_knows_the_device():
    array = on_gpu(own())
    assert array.device == DEVICE and array.where()[3] == DEVICE
    assert on_gpu(np.zeros((0, 2), np.float32)).device == DEVICE  # has no memory to ask for


def check_allreduce():
    array = on_gpu(own())
    (result,) = batches.run(lambda each: sum_of((each,), "sum"), array)
    assert isinstance(result, DeviceArray) and result.device == DEVICE
    assert np.array_equal(result.tensor.values(), sum(everyone()))
    assert np.array_equal(array.tensor.values(), own())


def check_the_other_collectives():
    size, rank = hvd.size(), hvd.rank()
    gathered = np.concatenate(everyone())
    (result,) = run(lambda each: [ops.allgather((each,), "gather", WORLD)], on_gpu(own()))
    assert np.array_equal(result, gathered)
    (result,) = run(lambda each: [ops.broadcast((each,), size - 1, "broadcast", WORLD)], on_gpu(own()))
    assert np.array_equal(result, everyone()[-1])
    (result,) = run(
        lambda each: [ops.reducescatter((each,), "scatter", hvd.Sum, 1.0, 1.0, WORLD)], on_gpu(own(2 * size))
    )
    assert np.array_equal(result, sum(everyone(2 * size))[rank : rank + 1])
    received, splits = run(lambda each: [ops.alltoall(each, [1] * size, "all", WORLD)], on_gpu(own(2 * size)))
    assert np.array_equal(received, np.stack([each[rank] for each in everyone(2 * size)]))
    assert splits.tolist() == [1] * size
    (result,) = run(lambda each: [ops.allgather((each,), "none", WORLD)], on_gpu(np.zeros((0, 2), np.float32)))
    assert result.shape == (0, 2)


def check_unequal_rows():
    rows = own(2 * (hvd.rank() + 1))
    (result,) = run(lambda each: [ops.allgather((each,), "unequal", WORLD)], on_gpu(rows))
    assert result.shape == (sum(range(1, hvd.size() + 1)), 2)


def check_groups():
    arrays = [on_gpu(own() + index) for index in range(3)]
    results = run(lambda *each: sum_of(each, "group", grouped=True), *arrays)
    for index, result in enumerate(results):
        assert np.array_equal(result, sum(everyone()) + index * hvd.size())


def check_what_nccl_does_not_do_goes_through_host_memory():
    (result,) = run(lambda each: sum_of((each,), "int16"), on_gpu(own().astype(np.int16)))
    assert np.array_equal(result, sum(everyone()).astype(np.int16))


def check_results_are_done_when_they_are_given_back():
    """For the runtime, work that is ordered on the stream is done. Here the stream is held up behind that point:
    no caller gets a result, and no input is freed, before it is let go."""
    gate, results, order = threading.Event(), [], []
    wait = _calls.wait

    def wait_and_hold(native):
        status = wait(native)
        _run_on(None, lambda: order.append(gate.wait(60)))
        return status

    def call():
        results.extend(run(lambda each: sum_of((each,), "held"), on_gpu(own())))
        order.append("result")

    thread = threading.Thread(target=call)
    _calls.wait = wait_and_hold
    try:
        thread.start()
        thread.join(0.1)  # a moment in which it could do what it must not do
        assert thread.is_alive() and not results
        gate.set()
        thread.join(60)
    finally:
        _calls.wait = wait
    assert order == [True, "result"], order
    assert np.array_equal(results[0], sum(everyone()))


def check_inputs_live_until_the_work_is_done():
    """Nothing but the operation has the input; its memory is overwritten when it is freed."""
    for name in ("freed", "freed too"):
        gate = threading.Event()
        _run_on(None, lambda gate=gate: gate.wait(60))
        batch = batches.Batch()
        batch.start(lambda each: sum_of((each,), name), on_gpu(own()))
        gc.collect()
        threading.Timer(0.05, gate.set).start()
        (result,) = batch.finish()
        assert np.array_equal(result.tensor.values(), sum(everyone())), name


def check_an_operation_that_is_let_go():
    batch = batches.Batch()
    batch.start(lambda each: sum_of((each,), "let go"), on_gpu(own()))
    batch.drop()
    hvd.barrier()
    (result,) = run(lambda each: sum_of((each,), "after"), on_gpu(own()))
    assert np.array_equal(result, sum(everyone()))


def check_a_result_on_another_device():
    class Elsewhere(Source):
        def fresh(self, shape, dtype, like):
            return Tensor((0,), dtype)

        def export(self, tensor):
            if not tensor.size:
                return dlpack_capsules.capsule(None, tensor.shape, device=(dlpack.CPU, 0))
            return super().export(tensor)

    array = DeviceArray(on_gpu(own()).tensor, Elsewhere())
    error = raises(RuntimeError, array.another)
    assert "HORA_GPU_TENSORS=host" in str(error), error


def check_nothing_is_left():
    gc.collect()
    operations.sweep()
    assert operations.in_flight_count() == 0
    gc.collect()
    assert dlpack_capsules.count() == 0, dlpack_capsules.count()
    assert Source.exported > 20
