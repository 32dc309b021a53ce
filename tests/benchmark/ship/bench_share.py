#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First launch on test hosts, with and without sharing between the hosts: bytes out of the launcher, and time.
Called by ./run share.

The two ways take turns within each round, each from empty caches. Times are medians. "sent" are the bytes that this
machine's bridge has sent to the hosts, with all headers: agent, runtime, orders; "runtime" the parts of the runtime
that the launcher has sent, by its own count (--json). The agent goes from the launcher to every host in both.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

from bench_ship import HOSTS, LIMIT_S, REPOSITORY, bridge, forget, sent_bytes

WAYS = ("auto", "launcher")


def launch(build, nodes, way, interface):
    """(seconds, bytes, bytes of the runtime) of one launch, which must succeed."""
    argv = [os.path.join(build, "bin", "horarun"), "-H", ",".join(f"{node}:1" for node in nodes)]
    argv += ["--ship-via", way, "--json", "--start-timeout", f"{LIMIT_S}s", "/bin/true"]
    before, began = sent_bytes(interface), time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", timeout=LIMIT_S)
    seconds, sent = time.perf_counter() - began, sent_bytes(interface) - before
    text = done.stderr.decode(errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{text}")
    events = [json.loads(line) for line in text.splitlines() if line.startswith('{"schema":')]
    return seconds, sent, sum(event["sent_bytes"] for event in events if event["event"] == "runtime")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=os.path.abspath, metavar="DIR")
    parser.add_argument("--hosts", type=lambda text: [int(n) for n in text.split(",")], default=[4, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(f"{options.rounds} rounds of /bin/true, one rank per host\n")
    columns = ["hosts"]
    for way in WAYS:
        columns += [f"{way}: time", "sent", "runtime"]
    columns += ["time, ratio", "sent, ratio", "runtime, ratio"]
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    for count in options.hosts:
        hide = [word for folder in {REPOSITORY, os.path.realpath(options.build)} for word in ("--hide", folder)]
        subprocess.run([HOSTS, "up", str(count), *hide], check=True, stdout=subprocess.DEVNULL)
        try:
            nodes = [f"node{k}" for k in range(1, count + 1)]
            results = {way: [] for way in WAYS}
            for turn in range(options.rounds):
                for way in WAYS if turn % 2 else reversed(WAYS):
                    forget(nodes)
                    results[way].append(launch(options.build, nodes, way, bridge()))
        finally:
            subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)
        medians = {way: [statistics.median(each) for each in zip(*results[way])] for way in WAYS}
        cells = [str(count)]
        for way in WAYS:
            seconds, sent, runtime = medians[way]
            cells += [f"{1000 * seconds:.0f} ms", f"{sent / 1e6:.1f} MB", f"{runtime / 1e6:.1f} MB"]
        cells += [f"{mine / other:.2f}" for mine, other in zip(medians["auto"], medians["launcher"])]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
