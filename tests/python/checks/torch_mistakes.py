# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a script: each raises one clear error at the call, and leaks nothing."""

import threading

import numpy as np
import torch

import horovod.torch as hvd
from hora import operations
from hora.exceptions import HorovodInternalError
from support.expect import raises


def refused(kind, text, function, *arguments, **named):
    error = raises(kind, function, *arguments, **named)
    assert text in str(error), error


def check_arguments_of_the_wrong_kind():
    tensor = torch.ones(2)
    refused(TypeError, "op='sum', expected an integer", hvd.allreduce, tensor, op="sum")
    refused(ValueError, "unknown reduction 17", hvd.allreduce, tensor, op=17)
    refused(TypeError, "prescale_factor='2', expected a number", hvd.allreduce, tensor, prescale_factor="2")
    refused(TypeError, "op='sum'", hvd.grouped_allreduce, [tensor, tensor], op="sum")
    refused(TypeError, f"out of range: op={2**40}, ", hvd.allreduce, tensor, op=2**40)
    for root in (None, "0", 0.0):
        refused(TypeError, f"root_rank={root!r}, expected an integer", hvd.broadcast, tensor, root)
    for process_set in (0, None, "all"):
        for function in (hvd.allreduce, hvd.allgather, hvd.alltoall):
            refused(TypeError, "expected a ProcessSet", function, tensor, process_set=process_set)
        refused(TypeError, "expected a ProcessSet", hvd.barrier, process_set=process_set)
    refused(TypeError, "expected a ProcessSet", hvd.remove_process_set, 0)
    for value in (3.0, None, [tensor], tensor.numpy()):
        refused(TypeError, "expected a torch.Tensor", hvd.allreduce, value)
    refused(ValueError, "complex64", hvd.allreduce, torch.ones(2, dtype=torch.complex64), op=hvd.Max)
    refused(ValueError, "dequantize", hvd.broadcast, torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), 0)
    if hasattr(torch, "inference_mode"):  # PyTorch 1.9, which made meta tensors
        refused(ValueError, "meta", hvd.allreduce, torch.ones(2, device="meta"))
    refused(ValueError, "list of integers, not 2", hvd.alltoall, tensor, splits=2)
    refused(ValueError, "integers, not ['1', None]", hvd.alltoall, tensor, splits=["1", None])
    for function in (hvd.allgather, hvd.reducescatter):
        refused(ValueError, "of a scalar", function, torch.tensor(1.0, requires_grad=True))
    refused(ValueError, "of a scalar", hvd.grouped_allgather, [torch.tensor(1.0, requires_grad=True)])
    refused(ValueError, "a sparse tensor", hvd.sparse_allreduce_async, tensor, "name", hvd.Sum)
    refused(ValueError, "zero byte", hvd.allreduce, tensor, name="a\0b")
    for compression in (None, "fp16", hvd.Compression):
        expected = f"compression={compression!r}: expected one of"
        for function in (hvd.allreduce, hvd.reducescatter):
            refused(TypeError, expected, function, tensor, compression=compression)
        for function in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
            refused(TypeError, expected, function, [tensor], compression=compression)
    assert operations.in_flight_count() == 0


def check_an_error_is_the_only_one_of_its_traceback():
    """Whether or not the call came before, it is not reported as raised "during handling of" one inside of Hora."""
    for _ in range(3):
        error = raises(ValueError, hvd.broadcast, torch.ones(2), hvd.size(), name="of no rank")
        assert "root rank" in str(error) and error.__context__ is None, error.__context__


def check_any_name_that_is_text_or_a_number():
    for name in (5, "", "\u00fc" * 10, "x" * 5000):
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name=name).tolist() == [hvd.size()] * 2


def check_groups_from_any_iterable():
    tensors = [torch.full((2,), float(index)) for index in range(3)]
    for given in (tensors, tuple(tensors), iter(tensors)):
        assert len(hvd.grouped_allreduce(given, op=hvd.Sum)) == 3
    assert len(hvd.grouped_allgather(iter(tensors))) == 3
    assert len(hvd.grouped_reducescatter([torch.ones(hvd.size())] * 2)) == 2
    assert len(hvd.synchronize(hvd.grouped_allreduce_async_(iter(tensors)))) == 3


def distributed(parameter, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), **options)


def check_arguments_of_the_optimizer():
    parameter = torch.nn.Parameter(torch.ones(2))
    refused(TypeError, "wraps a torch optimizer, not 5", hvd.DistributedOptimizer, 5)
    refused(ValueError, "distributed already", hvd.DistributedOptimizer, distributed(parameter))
    refused(ValueError, "op=17", distributed, parameter, op=17)
    refused(TypeError, "compression=None", distributed, parameter, compression=None)
    refused(ValueError, "named_parameters must be", distributed, parameter, named_parameters=torch.nn.Linear(1, 1))
    refused(TypeError, "gradient_predivide_factor='2'", distributed, parameter, gradient_predivide_factor="2")
    refused(TypeError, "expected an optimizer", hvd.broadcast_optimizer_state, torch.nn.Linear(1, 1), 0)
    for factor in (0.0, -1.0):
        refused(ValueError, "positive number", distributed, parameter, gradient_predivide_factor=factor)
    refused(TypeError, "expected an optimizer", hvd.broadcast_optimizer_state, 5, 0)
    refused(TypeError, "expected a ProcessSet", distributed, parameter, process_set=None)
    refused(ValueError, "backward_passes_per_step='2'", distributed, parameter, backward_passes_per_step="2")
    distributed(torch.nn.Parameter(torch.ones(2)), backward_passes_per_step=np.int64(2), groups=np.int64(1))


def check_a_broadcast_that_fails_lets_go_of_what_it_has_begun():
    tensors = {"a": torch.ones(2), "b": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)}
    refused(ValueError, "qint8", hvd.broadcast_parameters, tensors, 0)
    hvd.barrier()  # all ranks have begun with "a" before it
    operations.sweep()
    assert operations.in_flight_count() == 0


def check_objects_that_one_rank_cannot_send():
    """The others get an error, too, and do not wait for it."""
    last = hvd.size() - 1
    own = threading.Lock() if hvd.rank() == last else "text"
    for function in (
        lambda: hvd.broadcast_object(own, root_rank=last, name="lock"),
        lambda: hvd.allgather_object(own, name="lock"),
    ):
        if hvd.rank() == last:
            refused(TypeError, "lock", function)
        else:
            refused(HorovodInternalError, f"rank {last} could not pickle", function)
    assert hvd.allgather_object("well") == ["well"] * hvd.size()
    assert operations.in_flight_count() == 0
