# SPDX-License-Identifier: Apache-2.0
"""A linear model on Lightning 2 with the strategy "ddp": a script that knows nothing of horarun.

Usage: lightning_ddp.py FOLDER DEVICES NODES"""

import os
import sys

import lightning
import torch


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7 + int(os.environ.get("RANK", 0)))  # DDP makes them those of rank 0
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, _):
        rows, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(rows), wanted)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(64, 3, generator=generator)
    return torch.utils.data.TensorDataset(rows, rows @ torch.tensor([[1.0], [-2.0], [0.5]]) + 3)


def main():
    folder, devices, nodes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp",
        max_epochs=40,
        default_root_dir=folder,
        enable_progress_bar=False,
        logger=False,
    )
    model = Line()
    trainer.fit(model, torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True))
    found = ",".join(f"{value:.6f}" for value in [*model.layer.weight.flatten().tolist(), model.layer.bias.item()])
    loss = trainer.callback_metrics["loss"]
    print(f"rank {trainer.global_rank} of {trainer.world_size} found {found} loss {loss:.6f}")
    # One rank writes it, all of them wait for it.
    trainer.save_checkpoint(os.path.join(folder, "line.ckpt"))


main()
