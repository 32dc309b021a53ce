# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives, against what one process computes that holds every rank's data."""

import torch

import horovod.torch as hvd
from support.expect import raises


def inputs(shape, dtype=torch.float64):
    """Every rank's tensor and the weights of its loss, the same on all ranks."""
    generator = torch.Generator().manual_seed(7)
    tensors = [torch.rand(shape, generator=generator, dtype=dtype) + 0.5 for _ in range(hvd.size())]
    return tensors


def weights(shapes):
    generator = torch.Generator().manual_seed(11)
    return [torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def own(values):
    return values[hvd.rank()].clone().requires_grad_()


def close(actual, expected):
    assert actual is not None
    assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9), (actual, expected)


def reference(tensors, function, loss_weights):
    """Gradients of sum over ranks of (weights_r * output_r) with respect to every tensor;
    function maps all tensors to the list of all ranks' outputs."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    outputs = function(leaves)
    sum((w * y).sum() for w, y in zip(loss_weights, outputs)).backward()
    return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in leaves]


def check_allreduce():
    shape = (3, 2)
    tensors, loss_weights = inputs(shape), weights([shape] * hvd.size())
    combine = {
        hvd.Sum: lambda xs: sum(xs),
        hvd.Average: lambda xs: sum(xs) / len(xs),
        hvd.Max: lambda xs: torch.stack(xs).amax(0),
        hvd.Min: lambda xs: torch.stack(xs).amin(0),
        hvd.Product: lambda xs: torch.stack(xs).prod(0),
    }
    for op, function in combine.items():
        for scales in ((1.0, 1.0), (0.5, 3.0)):
            expected = reference(
                tensors, lambda xs: [function([x * scales[0] for x in xs]) * scales[1]] * hvd.size(), loss_weights
            )
            mine = own(tensors)
            result = hvd.allreduce(mine, op=op, prescale_factor=scales[0], postscale_factor=scales[1], name=f"g{op}")
            (result * loss_weights[hvd.rank()]).sum().backward()
            close(mine.grad, expected[hvd.rank()])


def check_grouped_allreduce():
    tensors, loss_weights = inputs((4,)), weights([(4,)] * hvd.size())
    expected = reference(tensors, lambda xs: [sum(xs) / len(xs)] * hvd.size(), loss_weights)
    first, second = own(tensors), own(tensors)
    results = hvd.grouped_allreduce([first, second], op=hvd.Average, name="gg")
    ((results[0] + 2 * results[1]) * loss_weights[hvd.rank()]).sum().backward()
    close(first.grad, expected[hvd.rank()])
    close(second.grad, 2 * expected[hvd.rank()])
    third = own(tensors)
    (hvd.grouped_allreduce([third], op=hvd.Max)[0] * loss_weights[hvd.rank()]).sum().backward()
    close(third.grad, reference(tensors, lambda xs: [torch.stack(xs).amax(0)] * hvd.size(), loss_weights)[hvd.rank()])


def check_second_derivative():
    tensors = inputs((3,))
    mine = own(tensors)
    result = hvd.allreduce(mine**3, op=hvd.Sum)
    (first,) = torch.autograd.grad(result.sum(), mine, create_graph=True)
    first.sum().backward()
    # d/dx of (size * 3 x^2), each use of allreduce multiplies by the number of ranks
    close(mine.grad, hvd.size() * 6 * tensors[hvd.rank()])


def check_allgather():
    # Horovod's convention: averaged over the ranks, where plain differentiation would add up.
    shapes = [(rank + 1, 2) for rank in range(hvd.size())]
    tensors = weights(shapes)
    total = sum(range(1, hvd.size() + 1))
    loss_weights = weights([(total, 2)] * hvd.size())
    expected = reference(tensors, lambda xs: [torch.cat(xs)] * hvd.size(), loss_weights)
    mine = own(tensors)
    (hvd.allgather(mine, name="ag") * loss_weights[hvd.rank()]).sum().backward()
    close(mine.grad, expected[hvd.rank()] / hvd.size())
    first, second = own(tensors), own(tensors)
    results = hvd.grouped_allgather([first, second])
    ((results[0] - results[1]) * loss_weights[hvd.rank()]).sum().backward()
    close(first.grad, expected[hvd.rank()] / hvd.size())
    close(second.grad, -expected[hvd.rank()] / hvd.size())


def check_broadcast():
    tensors, loss_weights = inputs((3,)), weights([(3,)] * hvd.size())
    for root in range(hvd.size()):
        expected = reference(tensors, lambda xs: [xs[root]] * hvd.size(), loss_weights)
        mine = own(tensors)
        (hvd.broadcast(mine, root) * loss_weights[hvd.rank()]).sum().backward()
        close(mine.grad, expected[hvd.rank()] / hvd.size())


def check_alltoall():
    size, rank = hvd.size(), hvd.rank()
    rows = sum(range(1, size + 1))
    tensors = inputs((rows + 1, 2))  # the last row is not sent
    starts = [sum(range(1, to + 1)) for to in range(size + 1)]

    def exchange(xs):
        return [torch.cat([x[starts[to] : starts[to + 1]] for x in xs]) for to in range(size)]

    loss_weights = weights([(size * (to + 1), 2) for to in range(size)])
    expected = reference(tensors, exchange, loss_weights)
    mine = own(tensors)
    received, _ = hvd.alltoall(mine, splits=[to + 1 for to in range(size)], name="a2a")
    (received * loss_weights[rank]).sum().backward()
    close(mine.grad, expected[rank])
    even = inputs((size, 2))
    mine = own(even)
    loss_weights = weights([(size, 2)] * size)
    (hvd.alltoall(mine) * loss_weights[rank]).sum().backward()
    close(mine.grad, torch.stack([loss_weights[to][rank] for to in range(size)]))


def check_reducescatter():
    # Horovod's convention: as often the size of the set as plain differentiation gives.
    size, rank = hvd.size(), hvd.rank()
    tensors = inputs((2 * size, 2))

    def scatter(xs, scale):
        total = sum(xs) * scale
        return [total[2 * to : 2 * to + 2] for to in range(size)]

    loss_weights = weights([(2, 2)] * size)
    for op, scale in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / size)):
        expected = reference(tensors, lambda xs: scatter(xs, scale * 0.5), loss_weights)
        mine = own(tensors)
        result = hvd.reducescatter(mine, op=op, prescale_factor=0.5, name=f"rs{op}")
        (result * loss_weights[rank]).sum().backward()
        close(mine.grad, expected[rank] * size)
    first, second = own(tensors), own(tensors)
    results = hvd.grouped_reducescatter([first, second], op=hvd.Sum)
    ((results[0] + results[1]) * loss_weights[rank]).sum().backward()
    close(first.grad, second.grad)


def check_compression_passes_gradients():
    mine = torch.ones(4, requires_grad=True)
    hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert torch.equal(mine.grad, torch.full((4,), float(hvd.size())))
    rows = torch.ones(hvd.size(), requires_grad=True)
    hvd.reducescatter(rows, op=hvd.Average, compression=hvd.Compression.fp16).sum().backward()
    assert torch.equal(rows.grad, torch.ones(hvd.size()))


def check_in_process_set():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 1])
    if hvd.rank() < 2:
        mine = torch.ones(2, requires_grad=True)
        hvd.allreduce(mine, op=hvd.Sum, process_set=pair).sum().backward()
        assert torch.equal(mine.grad, torch.full((2,), 2.0))
        mine = torch.ones(1, requires_grad=True)
        hvd.allgather(mine, process_set=pair).sum().backward()
        assert torch.equal(mine.grad, torch.ones(1))
    else:
        raises(ValueError, hvd.allreduce, torch.ones(2), process_set=pair)
    assert hvd.remove_process_set(pair)


def check_sync_batch_norm():
    """Against BatchNorm over all ranks' batches, in one process; batches differ in size."""
    torch.manual_seed(3)
    for shape in ((3,), (3, 5), (3, 4, 2)):
        batches = [torch.randn((rank + 2, *shape), dtype=torch.float64) * 3 + 5 for rank in range(hvd.size())]
        loss_weights = [torch.randn_like(batch) for batch in batches]
        plain = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)](3).double()
        ours = hvd.SyncBatchNorm(3).double()
        with torch.no_grad():
            for layer in (plain, ours):
                layer.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
                layer.bias.copy_(torch.tensor([0.1, -0.1, 0.0]))
        everything = torch.cat(batches).requires_grad_()
        mine = batches[hvd.rank()].clone().requires_grad_()
        for _ in range(2):  # the running statistics move twice
            whole = plain(everything)
            part = ours(mine)
        start = sum(len(batch) for batch in batches[: hvd.rank()])
        end = start + len(mine)
        close(part, whole[start:end])
        close(ours.running_mean, plain.running_mean)
        close(ours.running_var, plain.running_var)
        assert ours.num_batches_tracked == 2
        (whole * torch.cat(loss_weights)).sum().backward()
        (part * loss_weights[hvd.rank()]).sum().backward()
        close(mine.grad, everything.grad[start:end])
        close(hvd.allreduce(ours.weight.grad, op=hvd.Sum), plain.weight.grad)
        close(hvd.allreduce(ours.bias.grad, op=hvd.Sum), plain.bias.grad)
        plain.eval()
        ours.eval()
        close(ours(mine), plain(everything)[start:end])
    if hvd.size() > 1:  # older releases cannot normalise halves on a CPU
        layer = hvd.SyncBatchNorm(2)
        half = layer(torch.randn(4, 2, 3).half())
        assert half.dtype == torch.float16
        half.backward(torch.full_like(half, 1e4))
        close(layer.bias.grad, torch.full((2,), 12 * 1e4))  # more than a float16 can be
        layer = hvd.SyncBatchNorm(2)
        assert layer(torch.zeros(0, 2)).shape == (0, 2)  # on all ranks
        close(layer.running_mean, torch.zeros(2))
        close(layer.running_var, torch.ones(2))
    no_affine = hvd.SyncBatchNorm(2, affine=False, track_running_stats=False)
    no_affine(torch.randn(4, 2, requires_grad=True)).sum().backward()
    raises(ValueError, hvd.SyncBatchNorm(2), torch.randn(4))
    if hvd.size() > 1:  # alone it is PyTorch's layer, which differentiates twice
        batch = torch.randn(4, 2, requires_grad=True)
        (gradient,) = torch.autograd.grad((hvd.SyncBatchNorm(2)(batch) ** 3).sum(), batch, create_graph=True)
        raises(RuntimeError, gradient.sum().backward)
    if hvd.rank() == 0:  # evaluates alone
        plain = torch.nn.BatchNorm1d(2, affine=False, track_running_stats=False)
        batch = torch.randn(4, 2)
        close(no_affine.eval()(batch), plain.eval()(batch))
