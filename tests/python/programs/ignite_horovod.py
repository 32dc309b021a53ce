# SPDX-License-Identifier: Apache-2.0
"""A linear model in an engine of pytorch-ignite, by its backend for Horovod, with metrics of torchmetrics."""

import ignite.distributed as idist
import torch
import torchmetrics
from ignite.engine import Engine, Events


def mean_error():
    def gather(tensor, group=None):
        return list(idist.all_gather(tensor.reshape(1, *tensor.shape)))

    many = idist.get_world_size() > 1
    return torchmetrics.MeanSquaredError(dist_sync_fn=gather, distributed_available_fn=lambda: many)


def train(local_rank):
    torch.manual_seed(7 + idist.get_rank())  # auto_model() and auto_optim() make the models those of rank 0
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(64, 3, generator=generator)
    data = torch.utils.data.TensorDataset(rows, rows @ torch.tensor([[1.0], [-2.0], [0.5]]) + 3)
    loader = idist.auto_dataloader(data, batch_size=8 * idist.get_world_size(), shuffle=True)
    model = idist.auto_model(torch.nn.Linear(3, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    metric = mean_error()

    def step(engine, batch):
        optimizer.zero_grad()
        output = model(batch[0])
        torch.nn.functional.mse_loss(output, batch[1]).backward()
        optimizer.step()
        metric.update(output.detach(), batch[1])

    engine = Engine(step)
    engine.on(Events.EPOCH_STARTED)(lambda: metric.reset())
    engine.run(loader, max_epochs=60)
    found = ",".join(f"{value:.6f}" for value in [*model.weight.flatten().tolist(), model.bias.item()])
    print(f"rank {idist.get_rank()} of {idist.get_world_size()} found {found} loss {metric.compute().item():.6f}")


if __name__ == "__main__":
    with idist.Parallel(backend="horovod") as parallel:
        parallel.run(train)
