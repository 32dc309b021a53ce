#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Examines test hosts: once with nothing in their caches, then again and again.  Called by ./run.

The hosts of one machine share its processors, so this is the worst that as many real ones could take. Ends with 1 when
the median is above the bar.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "..", "support", "hosts")
BAR_S = 10.0


def examine(horarun, spec):
    # A slow check must be seen, not cut off.
    done = subprocess.run(
        [horarun, "doctor", "-H", spec, "--json", "--start-timeout", "60s"], capture_output=True, text=True, timeout=600
    )
    report = json.loads(done.stdout)
    if any(finding["severity"] == "error" for finding in report["findings"]):
        sys.exit(f"bench_doctor: {report['findings']}")
    world = report["world"]
    if world["ranks"] != len(report["hosts"]) or "seconds" not in world:
        sys.exit(f"bench_doctor: no job of all hosts: {world}")
    return report["seconds"], world["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--horarun", required=True)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    subprocess.run(
        [HOSTS, "up", str(options.hosts), "--hide", os.path.join(HERE, "..", "..", "..")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    spec = ",".join(f"node{k}:1" for k in range(1, options.hosts + 1))
    cold, _ = examine(options.horarun, spec)
    runs = [examine(options.horarun, spec) for _ in range(options.rounds)]
    median = statistics.median(seconds for seconds, _ in runs)
    print(f"{options.hosts} hosts on {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"first examination, the runtime shipped to all   {cold:6.2f} s")
    print(
        f"with the runtime there, median of {options.rounds}             {median:6.2f} s   "
        f"({min(s for s, _ in runs):.2f} to {max(s for s, _ in runs):.2f})"
    )
    print(f"of that the job of all hosts                    {statistics.median(w for _, w in runs):6.2f} s")
    print(f"the bar is {BAR_S:.0f} s: {'met' if median <= BAR_S else 'MISSED'}")
    return 0 if median <= BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
