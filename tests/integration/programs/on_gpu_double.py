# SPDX-License-Identifier: Apache-2.0
"""Runs a DDP program that is written for GPUs, unchanged, where there are only CPUs: a double of the devices, which
are in host memory, and of NCCL, which is Gloo. A rank that uses a device that is not its own, fails.

    on_gpu_double.py [--dies RANK:EPOCH] PROGRAM [ARGUMENT...]

With --dies, that rank dies in the first attempt when its sampler is informed of that epoch.
"""

import os
import pathlib
import runpy
import sys

import torch
import torch.distributed
import torch.nn.parallel
import torch.utils.data.distributed

_own = []  # the device that the program has chosen


def _place(device):
    """Checks a device of the program's and answers where its memory is here."""
    index = torch.device("cuda", device).index if isinstance(device, int) else torch.device(device).index
    assert _own == [index], f"device {index} is not that of this rank, which chose {_own}"
    return "cpu"


def _moved(to):
    def moved(self, device, *arguments, **named):
        return to(self, _place(device) if isinstance(device, int) else device, *arguments, **named)

    return moved


def _load(load):
    return lambda file, map_location, **named: load(file, map_location=_place(map_location), **named)


def _init(init):
    def wrapped(backend):
        assert backend == "nccl", backend
        init("gloo")

    return wrapped


def _parallel(original):
    class OnDouble(original):
        def __init__(self, module, device_ids):
            for device in device_ids:
                _place(device)
            super().__init__(module)

    return OnDouble


def _dying(set_epoch, rank, last):
    def wrapped(self, epoch):
        if epoch == last and os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os._exit(13)
        set_epoch(self, epoch)

    return wrapped


def main(words):
    sampler = torch.utils.data.distributed.DistributedSampler
    if words[0] == "--dies":
        rank, epoch = words[1].split(":")
        sampler.set_epoch = _dying(sampler.set_epoch, rank, int(epoch))
        words = words[2:]
    torch.set_num_threads(1)
    torch.cuda.set_device = _own.append
    torch.Tensor.to, torch.nn.Module.to = _moved(torch.Tensor.to), _moved(torch.nn.Module.to)
    torch.load = _load(torch.load)
    torch.distributed.init_process_group = _init(torch.distributed.init_process_group)
    torch.nn.parallel.DistributedDataParallel = _parallel(torch.nn.parallel.DistributedDataParallel)
    sys.argv = words
    sys.path[0] = str(pathlib.Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
