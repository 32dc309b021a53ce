# SPDX-License-Identifier: Apache-2.0
"""Elastic training as PyTorch's users write it for torchrun: a snapshot on disk, loaded at the start when there is
one. Knows nothing of Hora.

    torchrun --max-restarts 3 --nproc-per-node 2 snapshot_ddp.py SNAPSHOT EPOCHS FAILS

Behind epoch FAILS of the first attempt, rank 1 dies.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, path):
        self.path, self.first_epoch = path, 0
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = torch.nn.Linear(4, 1)
        if os.path.exists(path):
            snapshot = torch.load(path)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.first_epoch = snapshot["EPOCHS_RUN"]
        self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def save(self, epoch):
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}
        torch.save(snapshot, f"{self.path}.new")
        os.replace(f"{self.path}.new", self.path)

    def train(self, epochs, fails):
        for epoch in range(self.first_epoch, epochs):
            generator = torch.Generator().manual_seed(epoch * 1000 + dist.get_rank())
            inputs = torch.randn(8, 4, generator=generator)
            self.optimizer.zero_grad()
            self.model(inputs).square().mean().backward()
            self.optimizer.step()
            dist.barrier()
            if dist.get_rank() == 0:
                self.save(epoch)
            dist.barrier()
            if epoch == fails and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
                os._exit(13)


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(sys.argv[1])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"attempt {attempt}: begins with epoch {trainer.first_epoch}, {dist.get_world_size()} ranks", flush=True)
    trainer.train(int(sys.argv[2]), int(sys.argv[3]))
    if dist.get_rank() == 0:
        print(f"weights {trainer.model.module.weight.detach().flatten().tolist()}", flush=True)
    del trainer  # its model holds the process group, whose threads must end before Python does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
