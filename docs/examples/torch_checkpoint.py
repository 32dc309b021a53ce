# SPDX-License-Identifier: Apache-2.0
"""Training that continues from its last checkpoint: after a restart, a preemption, or in a later job.

    horarun -np 2 --restarts 3 python3 docs/examples/torch_checkpoint.py --checkpoint model.pt
    horarun -np 2 --restarts 3 --chaos kill:1@5s python3 docs/examples/torch_checkpoint.py --checkpoint model.pt

Rank 0 writes the checkpoint after each epoch, and where all hosts see it; every rank reads it at the start. After
SIGTERM, which batch systems and clouds send before they take a machine, the ranks finish the epoch, write the
checkpoint and end with exit code 75, so that `--restarts` or a batch system starts them again. Comments with "(hvd)"
mark what makes it distributed.
"""

import argparse
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

TRY_AGAIN = 75  # EX_TEMPFAIL: not a failure of the program


def save(path, **state):
    """A rank that is killed while it writes leaves the last checkpoint whole."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long an epoch takes at least")
    args = parser.parse_args()

    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_end.append(number))

    hvd.init()  # (hvd) joins the job
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    first = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epochs"]
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())  # (hvd)
    first = hvd.broadcast_object(first, root_rank=0)  # (hvd) all begin with what rank 0 has read
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if hvd.rank() == 0:
        attempt = os.environ.get("HORA_RESTART", "0")
        print(f"attempt {attempt}: begins with epoch {first + 1}, on {hvd.size()} rank(s)", flush=True)

    truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    for epoch in range(first, args.epochs):
        began = time.monotonic()
        # An epoch has the same data, whichever attempt trains it.
        generator = torch.Generator().manual_seed(epoch * 1000 + hvd.rank())
        for _ in range(10):
            inputs = torch.randn(16, 4, generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), inputs @ truth).backward()
            optimizer.step()
        time.sleep(max(0.0, began + args.seconds - time.monotonic()))
        if hvd.rank() == 0:
            save(args.checkpoint, model=model.state_dict(), optimizer=optimizer.state_dict(), epochs=epoch + 1)
        # (hvd) a signal may reach the ranks in different epochs: all end if one of them was asked to
        if max(hvd.allgather_object(len(asked_to_end))) and epoch + 1 < args.epochs:
            if hvd.rank() == 0:
                print(f"SIGTERM: ends after epoch {epoch + 1}", flush=True)
            hvd.shutdown()
            sys.exit(TRY_AGAIN)
    if hvd.rank() == 0:
        error = (model.weight.detach().t() - truth).abs().max()
        print(f"{args.epochs} epochs: the largest error of a weight is {error.item():.9f}", flush=True)


if __name__ == "__main__":
    main()
