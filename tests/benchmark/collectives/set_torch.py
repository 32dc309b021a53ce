# SPDX-License-Identifier: Apache-2.0
"""A set of tensors by torch.distributed's all_reduce over gloo, all in flight: the median in microseconds of the
slowest rank.  set_torch.py SET STEPS; started by horarun."""

import statistics
import sys
import time

import torch
import torch.distributed as dist


def counts(text):
    found = []
    for part in text.split(","):
        times, _, elements = part.rpartition("x")
        found += [int(elements)] * int(times or 1)
    return found


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    tensors = [torch.zeros(count) for count in counts(sys.argv[1])]

    def step():
        start = time.perf_counter()
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        return time.perf_counter() - start

    for _ in range(5):
        step()
    median = torch.tensor([statistics.median(step() for _ in range(int(sys.argv[2])))], dtype=torch.float64)
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(f"{float(median[0]) * 1e6:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
