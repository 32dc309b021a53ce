# SPDX-License-Identifier: Apache-2.0
"""A rank of the benchmark: times Hora, also as a backend of torch.distributed, and gloo on the same tensors, one after
the other in small turns, so that both see the same machine. Rank 0 prints one JSON object.

Started by tests/benchmark/python/collectives.py.
"""

import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from resnet50 import shapes
from torch.nn.parallel import DistributedDataParallel

import hora.numpy as hvn
import horovod.torch as hvd

TURNS = 9
groups = {}  # of torch.distributed, by column


def once(step, repeats):
    begun = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - begun) / repeats


def compare(candidates, repeats):
    """Seconds of each candidate (name -> function): the medians over the turns, where a turn's
    time is that of the slowest rank."""
    for step in candidates.values():
        once(step, max(2, repeats // 10))
    times = {name: [] for name in candidates}
    for _ in range(TURNS):
        for name, step in candidates.items():
            dist.barrier()
            seconds = torch.tensor(once(step, repeats))
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            times[name].append(seconds.item())
    return {name: {"median": statistics.median(each), "least": min(each)} for name, each in times.items()}


def allreduce_of(count, repeats):
    ours, theirs, backends = torch.ones(count), torch.ones(count), torch.ones(count)
    array = ours.numpy().copy()
    group = groups["hora.c10d"]
    return compare(
        {
            "hora.torch": lambda: hvd.allreduce_(ours, op=hvd.Average, name=f"torch.{count}"),
            "hora.numpy": lambda: hvn.allreduce_(array, op=hvn.Average, name=f"numpy.{count}"),
            "hora.c10d": lambda: dist.all_reduce(backends, group=group),
            "gloo": lambda: dist.all_reduce(theirs),
        },
        repeats,
    )


def gradient_set(repeats):
    """What a training step of ResNet-50 communicates: all tensors in flight, then all awaited."""
    ours = [torch.ones(shape) for shape in shapes()]
    sets = {name: [torch.ones(shape) for shape in shapes()] for name in groups}
    names = [f"gradient.{index}" for index in range(len(ours))]

    def with_hora():
        handles = [hvd.allreduce_async_(tensor, op=hvd.Average, name=name) for tensor, name in zip(ours, names)]
        for handle in handles:
            hvd.synchronize(handle)

    def with_torch(name):
        works = [dist.all_reduce(tensor, group=groups[name], async_op=True) for tensor in sets[name]]
        for work in works:
            work.wait()

    return compare(
        {"hora.torch": with_hora, "hora.c10d": lambda: with_torch("hora.c10d"), "gloo": lambda: with_torch("gloo")},
        repeats,
    )


class Parameters(torch.nn.Module):
    """ResNet-50's parameters, and a loss whose gradients cost next to nothing: what is left of a
    step is its communication."""

    def __init__(self):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(shape)) for shape in shapes())

    def forward(self):
        return sum(parameter.sum() for parameter in self.all)


class SmallNetwork(torch.nn.Module):
    """A convolutional network of 60 thousand parameters on a batch of 8 small pictures."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 7 * 7, 128), torch.nn.Linear(128, 10))
        self.batch = torch.ones(8, 1, 16, 16)

    def forward(self):
        return self.layers(self.batch).sum()


def only_meet(_state, bucket):
    """In place of the communication of a bucket: the ranks wait for each other, as communication makes them."""
    hvd.barrier()
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def training_step(make, repeats):
    """Backward pass and step: DistributedOptimizer against DistributedDataParallel over each backend."""
    ours = make()
    models = {"hora.torch": ours}
    models.update({name: DistributedDataParallel(make(), process_group=group) for name, group in groups.items()})
    models["no communication"] = DistributedDataParallel(make(), process_group=groups["hora.c10d"])
    models["no communication"].register_comm_hook(None, only_meet)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-9) for name, model in models.items()}
    optimizers["hora.torch"] = hvd.DistributedOptimizer(optimizers["hora.torch"], ours.named_parameters())

    def step(name):
        optimizers[name].zero_grad()
        models[name]().backward()
        optimizers[name].step()

    return compare({name: lambda name=name: step(name) for name in models}, repeats)


def main():
    quick = "--quick" in sys.argv
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    hvd.init()
    groups.update({"hora.c10d": dist.new_group(backend="hora"), "gloo": dist.group.WORLD})
    scale = 10 if quick else 1
    rows = {
        "allreduce 4 B": allreduce_of(1, 2000 // scale),
        "allreduce 4 KiB": allreduce_of(1 << 10, 1000 // scale),
        "allreduce 1 MiB": allreduce_of(1 << 18, 100 // scale),
        "allreduce 16 MiB": allreduce_of(4 << 20, 10 // scale),
        "allreduce 64 MiB": allreduce_of(16 << 20, 5 if not quick else 1),
        "one tensor of 102 MB": allreduce_of(sum(map(math.prod, shapes())), 5 if not quick else 1),
        "ResNet-50 gradients": gradient_set(5 if not quick else 1),
        "ResNet-50 step, DDP": training_step(Parameters, 5 if not quick else 1),
        "small CNN step, DDP": training_step(SmallNetwork, 50 // scale),
    }
    if hvd.rank() == 0:
        print(
            json.dumps({"ranks": hvd.size(), "cores": os.cpu_count(), "torch": torch.__version__, "seconds": rows}),
            flush=True,
        )
    hvd.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
