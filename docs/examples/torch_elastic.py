# SPDX-License-Identifier: Apache-2.0
"""Training that continues when ranks are lost or added: the script commits its state regularly, and
the training function restarts from the last commit with the current ranks.

    horarun -np 2 --min-np 1 -H localhost:1,127.0.0.1:1 python3 docs/examples/torch_elastic.py
    horarun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python3 docs/examples/torch_elastic.py

With --lose, one rank is killed in the second epoch, and the other one continues.
"""

import os
import signal
import sys

import torch

import horovod.torch as hvd

EPOCHS, BATCH = 4, 16


def main():
    hvd.init()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    truth = torch.tensor([[2.0], [-1.0], [0.5]])
    inputs = torch.randn(640, 3)
    data = torch.utils.data.TensorDataset(inputs, inputs @ truth)
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)

    @hvd.elastic.run
    def train(state):
        while state.epoch < EPOCHS:
            for index, (batch, target) in enumerate(loader):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(batch), target).backward()
                optimizer.step()
                state.sampler.record_batch(index, BATCH)
                if index % 5 == 4:
                    state.commit()
                if "--lose" in sys.argv and state.epoch == 1 and hvd.size() > 1 and hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            state.sampler.set_epoch(state.epoch + 1)
            state.epoch += 1
            state.commit()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
    state.register_reset_callbacks([lambda: print(f"going on with {hvd.size()} rank(s)")])
    train(state)
    if hvd.rank() == 0:
        error = (model.weight.detach().t() - truth).abs().max().item()
        print(f"{state.epoch} epochs: the largest error of a weight is {error:.6f}", flush=True)


if __name__ == "__main__":
    main()
