# SPDX-License-Identifier: Apache-2.0
"""Measures how many samples per second a residual network trains on random data, per rank and in
total.

    horarun -np 4 python3 docs/examples/torch_synthetic_benchmark.py --depth 4 --width 64
"""

import argparse
import timeit

import torch
import torch.nn.functional as F

import horovod.torch as hvd


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = torch.nn.BatchNorm2d(width)
        self.second = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = torch.nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(x + self.second_norm(self.second(y)))


def network(depth, width):
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 3, stride=2, padding=1),
        *[Block(width) for _ in range(depth)],
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(width, 1000),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=3)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
        device = "cuda"
    model = network(args.depth, args.width).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(args.batch_size, 3, args.image, args.image, device=device)
    labels = torch.randint(0, 1000, (args.batch_size,), device=device)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    timeit.timeit(step, number=args.num_warmup_batches)
    rates = []
    for _ in range(args.num_iters):
        seconds = timeit.timeit(step, number=args.num_batches_per_iter)
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
    everyone = hvd.allgather_object(sum(rates) / len(rates))
    if hvd.rank() == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(
            f"{parameters} parameters, {hvd.size()} rank(s): "
            f"{sum(everyone) / len(everyone):.1f} samples/s on each, "
            f"{sum(everyone):.1f} together",
            flush=True,
        )


if __name__ == "__main__":
    main()
