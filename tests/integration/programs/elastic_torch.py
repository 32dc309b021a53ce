# SPDX-License-Identifier: Apache-2.0
"""Elastic training whose result does not depend on how many ranks there were: the gradient of each step is
the sum over all samples, shared out among the ranks. Ends after the step in which STOP has appeared.

    elastic_torch.py STOP [HOST...]     a rank on one of these hosts ends at once
"""

import os
import sys
import time

import torch

import horovod.torch as hvd

SAMPLES, RATE = 48, 0.002


def problem():
    inputs = torch.sin(torch.arange(SAMPLES * 3, dtype=torch.float64).reshape(SAMPLES, 3))
    return inputs, inputs @ torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64) + 0.25


def new_model():
    torch.manual_seed(5)
    return torch.nn.Linear(3, 1).double()


def loss_of(model, inputs, targets):
    return ((model(inputs) - targets) ** 2).sum()


def say(*words):
    print(*words, flush=True)


def main():
    stop = sys.argv[1]
    if os.environ["HOROVOD_HOSTNAME"] in sys.argv[2:]:
        sys.exit(9)
    torch.set_num_threads(1)
    hvd.init()
    worker = os.environ["HORA_WORKER"]
    say("worker", worker, "pid", os.getpid(), "host", os.environ["HOROVOD_HOSTNAME"])
    inputs, targets = problem()
    model = new_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE), model.named_parameters(), op=hvd.Sum
    )

    @hvd.elastic.run
    def train(state):
        say("goes on with", hvd.size(), "at", state.step)
        while True:
            mine = slice(hvd.rank(), None, hvd.size())
            optimizer.zero_grad()
            loss = loss_of(model, inputs[mine], targets[mine])
            loss.backward()
            optimizer.step()
            state.step += 1
            total = hvd.allreduce(loss.detach(), op=hvd.Sum, name="loss").item()
            # Of what has been learned to the last bit only noise is left.
            assert state.loss is None or total <= state.loss * (1 + 1e-9) + 1e-15, "the loss has grown"
            state.loss = total
            asked = torch.tensor([1 if os.path.exists(stop) else 0])
            if hvd.allreduce(asked, op=hvd.Max, name="stop").item():
                return
            time.sleep(0.02)
            state.commit()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, loss=None)
    train(state)
    alone = new_model()
    descent = torch.optim.SGD(alone.parameters(), lr=RATE)
    for _ in range(state.step):
        descent.zero_grad()
        loss_of(alone, inputs, targets).backward()
        descent.step()
    apart = max((a - b).abs().max().item() for a, b in zip(model.parameters(), alone.parameters()))
    assert apart < 1e-9, f"{apart} away from what one process alone learns"
    say("done as", hvd.rank(), "of", hvd.size(), "the same" if apart < 1e-9 else apart)


main()
