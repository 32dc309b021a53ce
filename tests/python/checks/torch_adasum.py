# SPDX-License-Identifier: Apache-2.0
"""Adasum against a plain implementation: the combination of two vectors weighs each by how little it
says that the other does not say."""

import math
import sys

import torch

import horovod.torch as hvd
from support.expect import raises


class Skip(Exception):
    pass


def combined(a, b):
    """The Adasum of two tensors."""
    a, b = a.double(), b.double()
    dot, tiny = (a * b).sum().item(), math.sqrt(sys.float_info.min)
    squares = (a * a).sum().item(), (b * b).sum().item()
    weights = [1.0 if square < tiny else 1.0 - dot / (2.0 * square) for square in squares]
    return a * weights[0] + b * weights[1]


def reference(tensors):
    """Pairs of neighbours, then pairs of pairs: for a power of two of ranks."""
    while len(tensors) > 1:
        tensors = [combined(a, b) for a, b in zip(tensors[::2], tensors[1::2])]
    return tensors[0].double()


def needs_adasum():
    if hvd.size() > 1:
        try:
            hvd.allreduce(torch.ones(2), op=hvd.Adasum, name="probe")
        except (hvd.HorovodInternalError, ValueError) as error:
            if "adasum" not in str(error).lower():
                raise
            raise Skip(f"the runtime has no Adasum here: {error}") from None


def contributions(shape, dtype, alike):
    """Every rank's tensor: all nearly parallel, or in any direction."""
    generator = torch.Generator().manual_seed(5)
    base = torch.randn(shape, generator=generator, dtype=torch.float64)
    return [
        (
            (base if alike else 0.0)
            + torch.randn(shape, generator=generator, dtype=torch.float64) * (0.1 if alike else 1.0)
        ).to(dtype)
        for _ in range(hvd.size())
    ]


def close(actual, expected, tolerance):
    assert torch.allclose(actual.double(), expected, rtol=tolerance, atol=tolerance), (
        (actual.double() - expected).abs().max()
    )


def check_against_the_reference():
    needs_adasum()
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5), (torch.float16, 1e-2)):
        for shape in ((1,), (7,), (64, 33), (20_001,)):
            for alike in (True, False):
                tensors = contributions(shape, dtype, alike)
                before = tensors[hvd.rank()].clone()
                result = hvd.allreduce(tensors[hvd.rank()], op=hvd.Adasum)
                assert result.dtype == dtype and result.shape == before.shape
                close(result, reference(tensors), tolerance)
                assert torch.equal(tensors[hvd.rank()], before)
                tensor = before.clone()
                assert hvd.allreduce_(tensor, op=hvd.Adasum) is tensor
                assert torch.equal(tensor, result)


def check_known_cases():
    """Equal vectors give one of them, orthogonal ones their sum, a vector of zeros nothing."""
    needs_adasum()
    same = torch.tensor([3.0, -4.0, 0.5])
    close(hvd.allreduce(same, op=hvd.Adasum), same.double(), 1e-6)
    own = torch.zeros(hvd.size())
    own[hvd.rank()] = hvd.rank() + 2.0
    close(hvd.allreduce(own, op=hvd.Adasum), torch.arange(hvd.size()).double() + 2.0, 1e-6)
    lonely = same if hvd.rank() == 0 else torch.zeros(3)
    close(hvd.allreduce(lonely, op=hvd.Adasum), same.double(), 1e-6)


def check_several_tensors_do_not_mix():
    """Each tensor has weights of its own, fused or not."""
    needs_adasum()
    sets = [contributions((size,), torch.float32, alike=True) for size in (3, 50, 700)]
    handles = [
        hvd.allreduce_async(each[hvd.rank()], op=hvd.Adasum, name=f"several.{index}") for index, each in enumerate(sets)
    ]
    for handle, each in zip(handles, sets):
        close(hvd.synchronize(handle), reference(each), 1e-5)
    results = hvd.grouped_allreduce([each[hvd.rank()] for each in sets], op=hvd.Adasum)
    for result, each in zip(results, sets):
        close(result, reference(each), 1e-5)


def check_integers_are_refused():
    needs_adasum()
    raises(ValueError, hvd.allreduce, torch.ones(3, dtype=torch.int32), op=hvd.Adasum)


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def batch_of(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (
        torch.randn(6, 4, generator=generator, dtype=torch.float64),
        torch.randn(6, 2, generator=generator, dtype=torch.float64),
    )


def backward(model, batch, scale=1.0):
    (torch.nn.functional.mse_loss(model(batch[0]), batch[1]) * scale).backward()


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
}


def stepped_alone(make, steps, passes):
    """What the ranks do, in one process: each takes its own step, the changes are combined."""
    models = [model_of(0) for _ in range(hvd.size())]
    optimizers = [make(model.parameters()) for model in models]
    for step in range(steps):
        starts = [p.detach().clone() for p in models[0].parameters()]
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            for part in range(passes):
                backward(model, batch_of(rank, passes * step + part))
            optimizer.step()
        with torch.no_grad():
            for start, *parameters in zip(starts, *(model.parameters() for model in models)):
                change = reference([parameter - start for parameter in parameters])
                for parameter in parameters:
                    parameter.copy_(start + change)
    return models[0]


def check_optimizer_combines_the_changes():
    needs_adasum()
    for make in OPTIMIZERS.values():
        for passes in (1, 2):
            model = model_of(0)
            optimizer = hvd.DistributedOptimizer(
                make(model.parameters()), model.named_parameters(), op=hvd.Adasum, backward_passes_per_step=passes
            )
            for step in range(3):
                optimizer.zero_grad()
                for part in range(passes):
                    backward(model, batch_of(hvd.rank(), passes * step + part))
                optimizer.step()
            expected = stepped_alone(make, 3, passes)
            for mine, theirs in zip(model.parameters(), expected.parameters()):
                close(mine.detach(), theirs.detach(), 1e-9)


def check_optimizer_with_compression_and_frozen_parameters():
    needs_adasum()
    model = model_of(0)
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), op=hvd.Adasum, compression=hvd.Compression.fp16
    )
    before = model[2].weight.detach().clone()
    backward(model, batch_of(0, 0))  # the same gradients everywhere: the step itself comes out
    optimizer.step()
    plain = model_of(0)
    plain_optimizer = OPTIMIZERS["sgd"](plain.parameters())
    backward(plain, batch_of(0, 0))
    plain_optimizer.step()
    assert torch.equal(model[0].weight, frozen)
    close(model[2].weight.detach() - before, plain[2].weight.detach() - before, 1e-3)


def check_skip_synchronize_is_refused():
    needs_adasum()
    model = model_of(0)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), op=hvd.Adasum)
    if hvd.size() > 1:
        raises(AssertionError, lambda: optimizer.skip_synchronize().__enter__())
