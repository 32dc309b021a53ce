# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tutorial on fault-tolerant training with torchrun asks its programs to do: one GPU for each rank of
this host, by LOCAL_RANK, NCCL between them, and a snapshot that the first rank writes now and then and all load at the
start, if there is one. Knows nothing of Hora.

    torchrun --nproc-per-node 2 --max-restarts 3 snapshot_on_gpus.py EPOCHS SAVE_EVERY [--batch_size N]
"""

import argparse
import os

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SNAPSHOT = "snapshot.pt"


def load_snapshot(model, device):
    """The first epoch that is to be run."""
    if not os.path.exists(SNAPSHOT):
        return 0
    content = torch.load(SNAPSHOT, map_location=f"cuda:{device}")
    model.load_state_dict(content["weights"])
    print(f"[GPU{device}] goes on with epoch {content['epoch']}")
    return content["epoch"]


def save_snapshot(model, epoch):
    torch.save({"weights": model.module.state_dict(), "epoch": epoch}, SNAPSHOT)
    print(f"saved epoch {epoch}")


def run_epoch(model, optimizer, batches, device):
    for inputs, wanted in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs.to(device)), wanted.to(device))
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("save_every", type=int)
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()

    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    init_process_group(backend="nccl")
    data = TensorDataset(torch.randn(512, 20), torch.randn(512, 1))
    batches = DataLoader(
        data, batch_size=options.batch_size, pin_memory=True, shuffle=False, sampler=DistributedSampler(data)
    )
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model = model.to(device)
    first = load_snapshot(model, device)
    model = DistributedDataParallel(model, device_ids=[device])
    for epoch in range(first, options.epochs):
        print(f"[GPU{device}] Epoch {epoch} | Steps: {len(batches)}")
        batches.sampler.set_epoch(epoch)
        run_epoch(model, optimizer, batches, device)
        if device == 0 and epoch % options.save_every == 0:
            save_snapshot(model, epoch)
    destroy_process_group()


if __name__ == "__main__":
    main()
