#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rank 0 pays when the ranks of a job meet, and how that grows.  Called by ./run.

hora-meeting (meeting.cpp) is rank 0 and, in a child, all other ranks, which share the processors with it: the CPU time
is rank 0's alone, the wall time is that of both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from growth import exponents

PHASES = ("meeting", "cards", "vote", "second_vote", "gloo", "gloo_vote")
STEPS = 20  # of meeting.cpp
COSTS = ("CPU", "memory", "bytes sent", "connections", "CPU of a step")


def measure(build, ranks, per_host, star):
    command = [os.path.join(build, "bin", "hora-meeting"), str(ranks), str(per_host), *(["star"] if star else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"bench_meeting: {ranks} ranks: {done.stderr}")
    took = json.loads(done.stdout)
    wall = sum(took[phase]["wall_s"] for phase in PHASES)
    return {
        "wall": wall,
        "CPU": sum(took[phase]["cpu_s"] for phase in PHASES),
        "memory": took["max_rss_mib"],
        "bytes sent": took["bytes_sent"],
        "connections": took["connections"],
        "step": took["steps"]["wall_s"] / STEPS,
        "CPU of a step": took["steps"]["cpu_s"] / STEPS,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--star", action="store_true", help="compare with a connection of each rank to rank 0")
    parser.add_argument("--ranks", default="512,1024,2048,4096,8192")
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.ranks.split(","))
    ways = (False, True) if options.star else (False,)
    runs = {(star, size): [] for star in ways for size in sizes}
    for _ in range(options.rounds):
        for size in sizes:
            for star in ways:
                runs[star, size].append(measure(options.build, size, options.per_host, star))
    medians = {
        key: {cost: statistics.median(run[cost] for run in taken) for cost in ("wall", "step", *COSTS)}
        for key, taken in runs.items()
    }
    print(f"{options.per_host} ranks per host, medians of {options.rounds}, load {os.getloadavg()[0]:.1f}\n")
    print("| ranks | way | connections | meeting | CPU | bytes sent | memory | a step | CPU |")
    print("|---" * 9 + "|")
    for size in sizes:
        for star in ways:
            row = medians[star, size]
            print(
                f"| {size:,} | {'star' if star else 'tree'} | {row['connections']:,.0f} | {row['wall']:.2f} s "
                f"| {row['CPU']:.3f} s | {row['bytes sent'] / 1e6:,.1f} MB | {row['memory']:.0f} MiB "
                f"| {row['step'] * 1e3:.1f} ms | {row['CPU of a step'] * 1e3:.2f} ms |"
            )
    if len(sizes) > 1:
        grown = exponents(sizes, {size: medians[False, size] for size in sizes}, COSTS)
        slopes = ", ".join(f"{cost} {slope:.2f}" for cost, slope in grown.items())
        print(f"\ngrowth from {sizes[-2]:,} to {sizes[-1]:,} ranks (1 is linear): {slopes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
