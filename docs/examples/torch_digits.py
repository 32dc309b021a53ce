# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on pictures of digits; every rank trains on its own part of them.

    horarun -np 4 python3 docs/examples/torch_digits.py
    horarun -np 4 -H a:2,b:2 --ship docs/examples/torch_digits.py python3 torch_digits.py

The script makes its pictures (seven-segment digits with noise), so it downloads nothing. Comments
with "(hvd)" mark what makes it distributed.
"""

import argparse

import torch
import torch.nn.functional as F

import horovod.torch as hvd

SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abgfcd"]
PLACES = {
    "a": (1, slice(3, 7)),
    "g": (6, slice(3, 7)),
    "d": (11, slice(3, 7)),
    "f": (slice(2, 6), 2),
    "e": (slice(7, 11), 2),
    "b": (slice(2, 6), 7),
    "c": (slice(7, 11), 7),
}


def pictures(count, seed):
    """`count` noisy pictures of 13 x 10 points, and the digits that they show."""
    generator = torch.Generator().manual_seed(seed)
    templates = torch.zeros(10, 13, 10)
    for digit, segments in enumerate(SEGMENTS):
        for segment in segments:
            templates[(digit, *PLACES[segment])] = 1.0
    digits = torch.randint(0, 10, (count,), generator=generator)
    images = templates[digits] * (0.5 + torch.rand(count, 1, 1, generator=generator))
    images += torch.randn(count, 13, 10, generator=generator) * 0.25
    return torch.utils.data.TensorDataset(images.unsqueeze(1), digits)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 12, 3)
        self.hidden = torch.nn.Linear(12 * 5 * 4, 50)
        self.out = torch.nn.Linear(50, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--fp16-allreduce", action="store_true")
    args = parser.parse_args()

    hvd.init()  # (hvd) joins the job
    torch.manual_seed(42)
    torch.set_num_threads(1)
    device = "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())  # (hvd) a GPU for each rank of a host
        device = "cuda"

    train, test = pictures(args.samples, seed=1), pictures(1000, seed=2)
    # (hvd) every rank takes its own part of the pictures
    sampler = torch.utils.data.distributed.DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(train, args.batch_size, sampler=sampler)

    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.5)
    # (hvd) all ranks begin with the same weights, and average their gradients before each step
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    )

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, digits in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(device)), digits.to(device))
            loss.backward()
            optimizer.step()
        # (hvd) every rank tests a part; allreduce adds up the right answers
        images, digits = test.tensors
        mine = slice(hvd.rank(), None, hvd.size())
        with torch.no_grad():
            right = (model(images[mine].to(device)).argmax(1).cpu() == digits[mine]).sum()
        right = hvd.allreduce(right, op=hvd.Sum, name="right")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: {100.0 * right.item() / len(digits):.1f} % right", flush=True)


if __name__ == "__main__":
    main()
