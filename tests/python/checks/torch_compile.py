# SPDX-License-Identifier: Apache-2.0
"""The collectives inside of torch.compile, against the same code outside of it."""

import functools

import torch

import horovod.torch as hvd
from support.expect import raises

# What comes before Inductor, which compiles C++, and decides about gradients.
BACKEND = "aot_eager"
compiled = functools.partial(torch.compile, fullgraph=True, backend=BACKEND)


def values(rows=0, seed=7):
    generator = torch.Generator().manual_seed(seed + hvd.rank())
    return torch.rand(rows or 2 * hvd.size(), 3, generator=generator, dtype=torch.float64)


def same(function, *inputs):
    """Values and gradients are the same outside, inside, and inside after another compilation."""
    results = []
    for call in (function, compiled(function), compiled(function)):
        torch.compiler.reset()
        leaves = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
        output = call(*leaves)
        outputs = list(output) if isinstance(output, (list, tuple)) else [output]
        sum((each * each).sum() for each in outputs if each.requires_grad).backward()
        results.append((outputs, [leaf.grad for leaf in leaves]))
    for outputs, gradients in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outputs, results[0][0])), (outputs, results[0][0])
        assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(gradients, results[0][1])), (gradients, results[0])


def check_reductions():
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        same(lambda x, op=op: hvd.allreduce(x.sin(), op=op, prescale_factor=0.5, postscale_factor=3.0), values())
    same(lambda x: hvd.allreduce(x, name="named", op=hvd.Sum), values())
    same(lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Max), values(), values(seed=9))
    same(lambda x, y: hvd.grouped_allreduce([x, y * 2], op=hvd.Average), values(), values(seed=9))
    same(lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16), values())
    same(lambda x: hvd.reducescatter(x, op=hvd.Sum), values())
    uneven = values(2 * hvd.size() + 1)
    assert torch.equal(compiled(lambda x: hvd.reducescatter(x))(uneven), hvd.reducescatter(uneven))
    same(lambda x, y: hvd.grouped_reducescatter([x, y]), values(), values(seed=9))


def check_copies():
    same(lambda x: hvd.allgather(x.exp()), values())
    same(lambda x, y: hvd.grouped_allgather([x, y]), values(), values(seed=9))
    same(lambda x: hvd.broadcast(x * 2, hvd.size() - 1), values())
    same(lambda x: hvd.alltoall(x), values())
    splits = [rank + 1 for rank in range(hvd.size())]
    outside = hvd.alltoall(values(sum(splits)), splits)
    inside = compiled(lambda x: hvd.alltoall(x, splits))(values(sum(splits)))
    assert torch.equal(outside[0], inside[0]) and outside[1].tolist() == inside[1].tolist()


def check_inductor():
    """Moves nothing past a collective, and leaves none out."""

    def step(x):
        late = hvd.allreduce(x.sin(), op=hvd.Sum)
        first = hvd.allgather(x[:1] * 2)
        hvd.broadcast(x + 1, 0)
        return first.sum() + late.square().sum() + hvd.reducescatter(x, op=hvd.Sum).sum()

    outcomes = []
    for call in (step, torch.compile(step, fullgraph=True)):
        x = values().requires_grad_()
        call(x).backward()
        outcomes.append(x.grad)
    assert torch.allclose(*outcomes, rtol=1e-12), outcomes


def check_in_place():
    def step(x, y):
        hvd.allreduce_(x, op=hvd.Sum)
        hvd.broadcast_(y, 0)
        hvd.grouped_allreduce_([x, y], op=hvd.Average)
        return x + y

    outside, inside = [values(), values(seed=9)], [values(), values(seed=9)]
    assert torch.equal(step(*outside), compiled(step)(*inside))
    assert all(torch.equal(a, b) for a, b in zip(outside, inside))


def check_ranks_that_compile_at_other_times():
    """Some calls of some ranks are compiled, for the first time or again, and some are not. Without a name, and with
    collectives that do not depend on each other."""

    def step(x, factor):
        one, two = hvd.allreduce(x * factor, op=hvd.Sum), hvd.allreduce(x + 1, op=hvd.Sum)
        unused = hvd.allreduce(x - 1, op=hvd.Sum)
        return two * 2 + one, unused.shape

    torch.compiler.reset()
    call = compiled(step, dynamic=False)
    for turn in range(4):
        x = torch.full((turn % 2 + 1,), float(hvd.rank()))
        chosen = call if (turn + hvd.rank()) % 3 else step
        factor = 1.0 if hvd.rank() else float(turn + 1)  # compiled in: rank 0 compiles in every turn
        total = sum(range(hvd.size()))
        result, _ = chosen(x, factor)
        assert result.tolist() == [2.0 * (total + hvd.size()) + total] * len(x), (turn, result)


def check_training():
    """A compiled model, and a step that is compiled as far as PyTorch can, find what the step outside finds."""

    def train(wrap_model, wrap_step):
        torch.compiler.reset()
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        forward = wrap_model(model)

        def step(x):
            optimizer.zero_grad()
            loss = hvd.allreduce(forward(x).square().mean())
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = wrap_step(step)
        losses = [call(values(seed=turn)).item() for turn in range(3)]
        return losses, [parameter.detach().clone() for parameter in model.parameters()]

    def unchanged(each):
        return each

    partly = functools.partial(torch.compile, backend=BACKEND)
    outside = train(unchanged, unchanged)
    for inside in (train(compiled, unchanged), train(unchanged, partly)):
        assert all(abs(a - b) < 1e-12 for a, b in zip(outside[0], inside[0])), (outside[0], inside[0])
        assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(outside[1], inside[1]))


def check_process_sets_and_mistakes():
    if hvd.size() > 1:
        even = hvd.add_process_set(list(range(0, hvd.size(), 2)))
        if even.included():
            total = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=even))(torch.ones(2))
            assert total.tolist() == [even.size()] * 2
        hvd.remove_process_set(even)
    with_splits = compiled(lambda x: hvd.alltoall(x, [1] * hvd.size())[0].sum())
    error = raises(Exception, lambda: with_splits(torch.ones(hvd.size(), requires_grad=True)).backward())
    assert "leave out splits=" in str(error), repr(error)
