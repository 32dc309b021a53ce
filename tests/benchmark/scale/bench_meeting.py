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
COSTS = ("CPU", "memory", "bytes sent")


def measure(build, ranks, per_host):
    command = [os.path.join(build, "bin", "hora-meeting"), str(ranks), str(per_host)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"bench_meeting: {ranks} ranks: {done.stderr}")
    took = json.loads(done.stdout)
    wall = sum(took[phase]["wall_s"] for phase in PHASES)
    return {"wall": wall, "CPU": took["cpu_s"], "memory": took["max_rss_mib"], "bytes sent": took["bytes_sent"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--other", help="another build, to compare with")
    parser.add_argument("--ranks", default="512,1024,2048,4096,8192")
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.ranks.split(","))
    builds = {"": options.build} | ({"other": options.other} if options.other else {})
    runs = {(name, size): [] for name in builds for size in sizes}
    for _ in range(options.rounds):
        for size in sizes:
            for name, build in builds.items():
                runs[name, size].append(measure(build, size, options.per_host))
    medians = {
        key: {cost: statistics.median(run[cost] for run in taken) for cost in ("wall", *COSTS)}
        for key, taken in runs.items()
    }
    print(f"{options.per_host} ranks per host, medians of {options.rounds}, load {os.getloadavg()[0]:.1f}\n")
    ratio = " | CPU of the other | its memory | its bytes | ratio of CPU" if options.other else ""
    print(f"| ranks | wall | CPU | memory | bytes sent{ratio} |")
    print("|---" * (5 + 4 * bool(options.other)) + "|")
    for size in sizes:
        row = medians["", size]
        line = f"| {size:,} | {row['wall']:.2f} s | {row['CPU']:.3f} s | {row['memory']:.0f} MiB "
        line += f"| {row['bytes sent'] / 1e6:,.1f} MB"
        if options.other:
            other = medians["other", size]
            line += (
                f" | {other['CPU']:.3f} s | {other['memory']:,.0f} MiB | {other['bytes sent'] / 1e6:,.1f} MB "
                f"| {row['CPU'] / other['CPU']:.2f}"
            )
        print(line + " |")
    if len(sizes) > 1:
        grown = exponents(sizes, {size: medians["", size] for size in sizes}, COSTS)
        slopes = ", ".join(f"{cost} {slope:.2f}" for cost, slope in grown.items())
        print(f"\ngrowth from {sizes[-2]:,} to {sizes[-1]:,} ranks (1 is linear): {slopes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
