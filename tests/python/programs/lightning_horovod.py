# SPDX-License-Identifier: Apache-2.0
"""A linear model on pytorch-lightning 1.9 with its strategy "horovod"."""

import pytorch_lightning as lightning
import torch

import horovod.torch as hvd


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7 + hvd.rank())  # the strategy makes the weights those of rank 0
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, _):
        rows, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(rows), wanted)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


hvd.init()
generator = torch.Generator().manual_seed(1)
rows = torch.randn(64, 3, generator=generator)
data = torch.utils.data.TensorDataset(rows, rows @ torch.tensor([[1.0], [-2.0], [0.5]]) + 3)
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="horovod",
    max_epochs=40,
    enable_progress_bar=False,
    enable_checkpointing=False,
    logger=False,
)
model = Line()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
found = ",".join(f"{value:.6f}" for value in [*model.layer.weight.flatten().tolist(), model.layer.bias.item()])
print(f"rank {trainer.global_rank} of {trainer.world_size} found {found} loss {trainer.callback_metrics['loss']:.6f}")
