# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's all_reduce over gloo: "bytes median p99 mean" for each size, in microseconds, of the
slowest rank. Started by horarun."""

import statistics
import sys
import time

import torch
import torch.distributed as dist


def timed(tensor):
    start = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - start


def largest(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor[0])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    for size in (int(text) for text in sys.argv[1].split(",")):
        tensor = torch.zeros(max(1, size // 4))
        for _ in range(5):
            timed(tensor)
        each = largest(sum(timed(tensor) for _ in range(3)) / 3)
        count = max(5, min(100_000, int(0.3 / max(each, 1e-7))))
        dist.barrier()
        times = sorted(timed(tensor) for _ in range(count))
        median, p99 = largest(statistics.median(times)), largest(times[int((count - 1) * 0.99)])
        mean = largest(statistics.mean(times))
        if dist.get_rank() == 0:
            print(f"{size} {median * 1e6:.3f} {p99 * 1e6:.3f} {mean * 1e6:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
