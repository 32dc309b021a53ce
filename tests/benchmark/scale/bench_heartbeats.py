#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a round of signs of life costs rank 0, by the leaders of the hosts and from every rank.  Called by ./run."""

import argparse
import json
import os
import statistics
import subprocess
import sys


def measure(build, ranks, per_host, way):
    command = [os.path.join(build, "bin", "hora-heartbeats"), str(ranks), str(per_host), "20", *way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"bench_heartbeats: {ranks} ranks: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", default="1000,8000,16000")
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.ranks.split(","))
    ways = {"the leaders of the hosts": (), "every rank": ("all",)}
    runs = {(size, way): [] for size in sizes for way in ways}
    for _ in range(options.rounds):
        for size, way in runs:
            runs[size, way].append(measure(options.build, size, options.per_host, ways[way]))
    print(f"{options.per_host} ranks per host, medians of {options.rounds}, load {os.getloadavg()[0]:.1f}\n")
    print("| ranks | rank 0 asks | questions | CPU of rank 0 for a round |")
    print("|---" * 4 + "|")
    for (size, way), taken in runs.items():
        cpu = statistics.median(run["cpu_s"] for run in taken)
        print(f"| {size:,} | {way} | {taken[0]['asked']:,} | {cpu * 1e3:.1f} ms |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
