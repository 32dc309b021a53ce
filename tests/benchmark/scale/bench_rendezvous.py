#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the rendezvous server pays when the ranks of a job meet there, and how that grows.  Called by ./run.

wire_up (tests/benchmark/rendezvous) plays the ranks, a process each: `hora` with a write and a waiting read per
meeting, over one connection per rank; `gloo` as Horovod's Gloo context does, with a connection per request and each
peer's key asked for every 10 ms. CPU time and memory are the server's alone, the bytes are those of the network
namespace.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

from growth import exponents

COSTS = ("CPU", "memory", "requests", "connections", "bytes")
WAYS = {"hora": "batch", "gloo": "classic"}


class Server:
    def __init__(self, build):
        self.process = subprocess.Popen(
            [os.path.join(build, "bin", "hora-rendezvous-standalone"), "--address", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        match = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
        if not match:
            sys.exit(f"bench_rendezvous: the server said {line!r}")
        self.port = match[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) / 1024


def bytes_on_loopback():
    with open("/proc/net/dev", encoding="utf-8") as file:
        return int(re.search(r"^\s*lo:\s*(\d+)", file.read(), re.M)[1])


def meet(build, way, ranks, meetings):
    with Server(build) as server:
        cpu, sent = server.cpu_s(), bytes_on_loopback()
        program = os.path.join(build, "bin", "wire_up")
        command = [program, "127.0.0.1", server.port, str(ranks), str(meetings), WAYS[way]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            sys.exit(f"bench_rendezvous: {ranks} ranks, {way}: {done.stderr[-2000:]}")
        took = json.loads(done.stdout)
        return {
            "wall": took["seconds"],
            "CPU": server.cpu_s() - cpu,
            "memory": server.peak_mib(),
            "requests": took["requests"],
            "connections": took["connections"],
            "bytes": bytes_on_loopback() - sent,
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", default="64,128,256,512,1024")
    parser.add_argument("--gloo-ranks", default="32,64,128", help="their cost is quadratic in connections")
    parser.add_argument("--meetings", type=int, default=6, help="of all ranks, one after the other")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.meetings} meetings, medians of {options.rounds}, load {os.getloadavg()[0]:.1f}")
    for way, text in (("hora", options.ranks), ("gloo", options.gloo_ranks)):
        sizes = sorted(int(size) for size in text.split(","))
        medians = {}
        print(f"\n{way}\n\n| ranks | wall | CPU | memory | requests | connections | bytes |")
        print("|---" * 7 + "|")
        for size in sizes:
            runs = [meet(options.build, way, size, options.meetings) for _ in range(options.rounds)]
            row = medians[size] = {cost: statistics.median(run[cost] for run in runs) for cost in ("wall", *COSTS)}
            print(
                f"| {size:,} | {row['wall']:.2f} s | {row['CPU']:.2f} s | {row['memory']:.0f} MiB "
                f"| {row['requests']:,.0f} | {row['connections']:,.0f} | {row['bytes'] / 1e6:,.1f} MB |",
                flush=True,
            )
        if len(sizes) > 1:
            grown = ", ".join(f"{cost} {slope:.2f}" for cost, slope in exponents(sizes, medians, COSTS).items())
            print(f"\ngrowth from {sizes[-2]:,} to {sizes[-1]:,} ranks (1 is linear): {grown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
