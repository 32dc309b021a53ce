# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on the tensors of a real GPU: results, order on streams, gradients, a few steps of training.

Ranks may share a GPU; then everything goes through host memory (decision 39), with the same results."""

import sys

import torch

import horovod.torch as hvd
from hora import basics

hvd.init()
rank, size = hvd.rank(), hvd.size()
device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
torch.cuda.set_device(device)
RANKS = range(size)


def check_operations():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        for count in (0, 1, 1000, 300_001):
            own = (torch.arange(count, device=device) % 7 + rank).to(dtype)
            expected = sum((torch.arange(count) % 7 + each).to(torch.float64) for each in RANKS).to(dtype)
            got = hvd.allreduce(own, op=hvd.Sum)
            assert got.device == own.device and torch.equal(got.cpu(), expected), (dtype, count)
            parts = hvd.allgather(own)
            assert torch.equal(parts[rank * count : (rank + 1) * count], own), (dtype, count)
            sent = own.clone()
            hvd.broadcast_(sent, root_rank=size - 1)
            assert torch.equal(sent.cpu(), (torch.arange(count) % 7 + size - 1).to(dtype)), (dtype, count)


def check_rows():
    rows = torch.arange(4 * size, device=device, dtype=torch.float32).reshape(2 * size, 2) * (rank + 1)
    got = hvd.reducescatter(rows, op=hvd.Sum)
    factor = sum(each + 1 for each in RANKS)
    whole = torch.arange(4 * size, dtype=torch.float32).reshape(2 * size, 2) * factor
    assert torch.equal(got.cpu(), whole[2 * rank : 2 * rank + 2]), got
    got, splits = hvd.alltoall(torch.full((size, 3), float(rank), device=device), torch.ones(size, dtype=torch.int32))
    assert torch.equal(got.cpu(), torch.arange(size, dtype=torch.float32).reshape(-1, 1).expand(-1, 3)), got
    assert splits.tolist() == [1] * size


def check_streams():
    """What makes the tensor is still under way on a stream when the operation is submitted, and what uses the result
    is submitted before it is there."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(20):
            torch.cuda._sleep(5_000_000)  # milliseconds
            own = torch.full((100_000,), float(rank + 1), device=device)
            handle = hvd.allreduce_async(own, op=hvd.Sum)
            got = hvd.synchronize(handle) * 2
    stream.synchronize()
    assert (got == 2 * sum(each + 1 for each in RANKS)).all(), got


def check_many_in_flight():
    handles = []
    for step in range(3):
        tensors = [torch.full((1 + 97 * i,), float(rank + i + step), device=device) for i in range(100)]
        handles = [hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"many.{i}") for i, tensor in enumerate(tensors)]
        for i, handle in enumerate(handles):
            expected = float(sum(each + i + step for each in RANKS))
            assert (hvd.synchronize(handle) == expected).all(), (step, i)
    group = hvd.grouped_allreduce([torch.ones(5, device=device), torch.ones(7, 3, device=device)], op=hvd.Sum)
    assert all((each == size).all() for each in group)


def check_scale_and_extremes():
    own = torch.tensor([1.0, -2.0, 3.5], device=device) * (rank + 1)
    assert torch.allclose(hvd.allreduce(own, op=hvd.Average).cpu(), torch.tensor([1.0, -2.0, 3.5]) * (size + 1) / 2)
    assert torch.equal(hvd.allreduce(own, op=hvd.Max).cpu(), torch.tensor([1.0 * size, -2.0, 3.5 * size]))
    assert torch.equal(hvd.allreduce(own, op=hvd.Min).cpu(), torch.tensor([1.0, -2.0 * size, 3.5]))
    got = hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.allclose(got.cpu(), torch.tensor([1.0, -2.0, 3.5]) * size * (size + 1)), got
    half = hvd.allreduce(own.half(), op=hvd.Average, prescale_factor=2.0)
    assert torch.allclose(half.float().cpu(), torch.tensor([1.0, -2.0, 3.5]) * (size + 1)), half


def check_adasum():
    same = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
    if size & (size - 1) == 0:
        assert torch.allclose(hvd.allreduce(same, op=hvd.Adasum), same), "of equal vectors it is their average"


def check_gradients():
    x = torch.ones(1000, device=device, requires_grad=True)
    hvd.allreduce(x * (rank + 1), op=hvd.Sum).sum().backward()
    assert (x.grad == size * (rank + 1)).all(), x.grad


def check_training():
    """As one process that sees all of the data."""

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)).to(device)

    def data(of):
        generator = torch.Generator().manual_seed(100 + of)
        return torch.randn(16, 20, generator=generator).to(device), torch.randn(16, 3, generator=generator).to(device)

    def train(net, optimizer, batches):
        for _ in range(5):
            optimizer.zero_grad()
            torch.stack([torch.nn.functional.mse_loss(net(x), y) for x, y in batches]).mean().backward()
            optimizer.step()
        return torch.cat([each.detach().reshape(-1) for each in net.parameters()])

    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        net = model()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), named_parameters=net.named_parameters(), compression=compression
        )
        got = train(net, optimizer, [data(rank)])
        alone = model()
        expected = train(alone, torch.optim.SGD(alone.parameters(), lr=0.1), [data(each) for each in RANKS])
        tolerance = 1e-5 if compression is hvd.Compression.none else 1e-2
        assert torch.allclose(got, expected, atol=tolerance), (compression, (got - expected).abs().max())


def check_join():
    hvd.join()


for name, check in [each for each in list(globals().items()) if each[0].startswith("check_")]:
    try:
        check()
    except Exception:
        print(f"rank {rank}: {name} failed", file=sys.stderr, flush=True)
        raise
backends = [each["id"] for each in basics.describe()["backends"] if each["usable"]]
print(f"rank {rank} of {size} on {torch.cuda.get_device_name(device)}: ok, with {', '.join(backends)}", flush=True)
hvd.shutdown()
