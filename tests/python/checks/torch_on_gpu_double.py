# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on tensors of a GPU, down to the nccl backend, on doubles of torch.cuda and of the
CUDA and NCCL libraries (tests/support/gpu_double): order on streams, devices, lifetimes, results."""

import gc
import threading
import time

import torch

import horovod.torch as hvd
from hora import basics, operations
from support import gpu_double
from support.expect import raises
from support.gpu_double import DEVICE, on_device, on_host

gpu_double.install()


def own(count=4):
    return torch.arange(count, dtype=torch.float32).reshape(-1, 2) + 10 * hvd.rank()


def total():
    return sum(torch.arange(4.0).reshape(-1, 2) + 10 * rank for rank in range(hvd.size()))


class Late:
    """A tensor whose values are written by work on a stream that waits until it is let go."""

    def __init__(self, stream, values):
        self.values = values
        self.gate = threading.Event()
        self.tensor = on_device(torch.full_like(values, -1.0))
        address = self.tensor.data_ptr()

        def write():
            assert self.gate.wait(60), "the stream's work was not let go"
            torch.frombuffer(
                (gpu_double.ctypes.c_char * (4 * values.numel())).from_address(address), dtype=torch.float32
            ).copy_(values.reshape(-1))

        stream.run(write)


def stays_in_flight(handle, what):
    """For a moment in which the runtime could do what it must not do."""
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        assert not hvd.poll(handle), what


def check_the_backend():
    backends = basics.describe()["backends"]
    assert any(each["id"] == "nccl" and each["usable"] for each in backends), backends


def check_a_rank_that_joins_before_its_first_tensor():
    """It takes part with nothing, on the device that is its own: two ranks on one are refused by NCCL."""
    if hvd.rank() == 0:
        assert torch.equal(on_host(hvd.allreduce(on_device(own()), name="alone", op=hvd.Sum)), own())
    hvd.join()


def check_operations_wait_for_the_current_stream():
    """Nothing reads a tensor before the work that makes it is done, whatever the other streams do."""
    size = hvd.size()
    gathered = torch.cat([own() + 10 * (rank - hvd.rank()) for rank in range(size)])
    cases = {
        "allreduce": (hvd.allreduce_async, dict(op=hvd.Sum), total()),
        "allreduce in place": (hvd.allreduce_async_, dict(op=hvd.Sum), total()),
        "average": (hvd.allreduce_async_, dict(op=hvd.Average), total() / size),
        "broadcast": (hvd.broadcast_async, dict(root_rank=size - 1), own() + 10 * (size - 1 - hvd.rank())),
        "broadcast in place": (hvd.broadcast_async_, dict(root_rank=0), own() - 10 * hvd.rank()),
        "allgather": (hvd.allgather_async, {}, gathered),
        "reducescatter": (hvd.reducescatter_async, dict(op=hvd.Sum), None),
        "alltoall": (hvd.alltoall_async, {}, None),
    }
    for stream in (gpu_double.Stream(), gpu_double.Stream(default=True)):
        for what, (function, arguments, expected) in cases.items():
            if expected is None and size != 2:
                continue
            with gpu_double.current(stream):
                late = Late(stream, own())
                handle = function(late.tensor, name=what, **arguments)
                stays_in_flight(handle, what)
                late.gate.set()
                result = hvd.synchronize(handle)
            if what == "reducescatter":
                expected = total()[hvd.rank() : hvd.rank() + 1]
            elif what == "alltoall":
                expected = torch.stack(
                    [torch.arange(4.0).reshape(2, 2)[hvd.rank()] + 10 * rank for rank in range(size)]
                )
            assert result.device == DEVICE, (what, result.device)
            assert torch.equal(on_host(result), expected), (what, on_host(result), expected)
            if "in place" in what:
                assert result is late.tensor


def check_synchronous_operations():
    size, tensor = hvd.size(), on_device(own())
    assert torch.equal(on_host(hvd.allreduce(tensor, op=hvd.Sum)), total())
    assert torch.equal(on_host(hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16)), total())
    assert torch.equal(on_host(tensor), own())
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(on_host(tensor), total())
    received, splits = hvd.alltoall(on_device(own(2 * size)), splits=[1] * size)
    assert received.device == splits.device == DEVICE and splits.tolist() == [1] * size
    assert hvd.allgather(on_device(torch.zeros(0, 2))).shape == (0, 2)
    assert hvd.allgather_object(hvd.rank()) == list(range(size))


def check_groups():
    tensors = [on_device(own() + index) for index in range(3)]
    for index, result in enumerate(hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        assert torch.equal(on_host(result), total() + index * hvd.size())
    hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    assert torch.equal(on_host(tensors[2]), total() + 2 * hvd.size())
    gathered = hvd.grouped_allgather(tensors[:2])
    assert [result.shape for result in gathered] == [(2 * hvd.size(), 2)] * 2


def check_what_nccl_does_not_do_goes_through_host_memory():
    stream = gpu_double.Stream()
    with gpu_double.current(stream):
        same = Late(stream, own() - 10 * hvd.rank() + 1)
        handle = hvd.allreduce_async_(same.tensor, name="adasum", op=hvd.Adasum)
        same.gate.set()
        # Of equal vectors it is the average.
        assert torch.equal(on_host(hvd.synchronize(handle)), own() - 10 * hvd.rank() + 1)
    whole = on_device((own() + 1).to(torch.int16))
    assert torch.equal(on_host(hvd.allreduce(whole, name="int16", op=hvd.Sum)), (total() + hvd.size()).to(torch.int16))
    scattered = on_host(hvd.reducescatter(whole, name="scattered", op=hvd.Sum))
    rows = torch.chunk((total() + hvd.size()).to(torch.int16), hvd.size())
    assert torch.equal(scattered, rows[hvd.rank()])
    if hvd.rank() == 0:
        alone = hvd.allreduce(whole, name="int16 of one", op=hvd.Sum)
        assert torch.equal(on_host(alone), (own() + 1).to(torch.int16))
    hvd.join()


def check_tensors_freed_early():
    """The script has forgotten its tensor when the GPU comes to it."""
    for start in (hvd.allreduce_async, hvd.allreduce_async_):
        stream, gate = gpu_double.Stream(), threading.Event()
        stream.run(lambda gate=gate: gate.wait(60))
        with gpu_double.current(stream):
            handle = start(on_device(own()), op=hvd.Sum, name="freed")
            gc.collect()
            stays_in_flight(handle, "freed")
            gate.set()
            result = hvd.synchronize(handle)
        assert torch.equal(on_host(result), total()), (start, on_host(result))


def check_not_contiguous():
    tensor = on_device(own()).t()
    assert not tensor.is_contiguous()
    assert torch.equal(on_host(hvd.allreduce(tensor, op=hvd.Sum)), total().t())
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(on_host(tensor), total().t())


def check_a_set_of_gradients():
    """As DistributedOptimizer submits them: many in flight, awaited together."""
    tensors = [on_device(torch.full((index + 1,), float(hvd.rank() + index))) for index in range(50)]
    handles = [
        hvd.allreduce_async_(tensor, op=hvd.Average, name=f"gradient {index}") for index, tensor in enumerate(tensors)
    ]
    for handle in handles:
        hvd.synchronize(handle)
    for index, tensor in enumerate(tensors):
        expected = index + (hvd.size() - 1) / 2
        assert torch.allclose(on_host(tensor), torch.tensor(expected)), (index, on_host(tensor))


def check_one_rank_on_the_host_is_an_error_of_all():
    if hvd.size() == 1:
        return
    tensor = own() if hvd.rank() == 0 else on_device(own())
    error = raises(hvd.HorovodInternalError, hvd.allreduce, tensor, name="mixed")
    assert "device" in str(error), error


def check_other_devices_are_refused():
    error = raises(ValueError, hvd.allreduce, torch.ones(2, device="meta"))
    assert "meta" in str(error), error


def check_nothing_is_left():
    assert operations.in_flight_count() == 0
