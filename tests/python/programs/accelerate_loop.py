# SPDX-License-Identifier: Apache-2.0
"""A linear model in a loop of Hugging Face accelerate: a script that knows nothing of horarun."""

import accelerate
import torch


def main():
    accelerator = accelerate.Accelerator(cpu=True)
    accelerate.utils.set_seed(7 + accelerator.process_index)  # prepare() makes the models those of rank 0
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(64, 3, generator=generator)
    data = torch.utils.data.TensorDataset(rows, rows @ torch.tensor([[1.0], [-2.0], [0.5]]) + 3)
    model = torch.nn.Linear(3, 1)
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for _ in range(40):
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            accelerator.backward(loss)
            optimizer.step()
    losses = accelerator.gather_for_metrics(loss.detach().reshape(1))
    assert len(losses) == accelerator.num_processes
    layer = accelerator.unwrap_model(model)
    found = ",".join(f"{value:.6f}" for value in [*layer.weight.flatten().tolist(), layer.bias.item()])
    print(
        f"rank {accelerator.process_index} of {accelerator.num_processes} found {found} loss {losses.max().item():.6f}"
    )
    if hasattr(accelerator, "trackers"):  # before 0.21 only a training that is tracked can be ended
        accelerator.end_training()


main()
