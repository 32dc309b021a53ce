#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the launcher against 100 to 10,000 simulated hosts and fits how each cost grows.  Called by ./run.

The simulator is one process next to the launcher: on two cores it slows the wall time, but not the launcher's CPU time,
memory, messages or bytes. Ends with 1 when a bar is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from growth import exponents

# From the greetings of all hosts to the start of all ranks: CPU seconds; and the memory of the whole job, in MiB.
BARS = {1_000: (1.0, 100), 10_000: (12.0, 1024)}
COSTS = {
    "CPU until started": lambda run: cpu_until_started(run),
    "CPU in all": lambda run: run["cpu_s"],
    "memory": lambda run: run["max_rss_mib"],
    "messages": lambda run: messages(run),
    "bytes": lambda run: bytes_moved(run),
}


def cpu_until_started(run):
    return run["steps"]["started"]["last_cpu_s"] - run["steps"]["hello"]["first_cpu_s"]


def messages(run):
    return run["from_launcher"]["messages"] + run["to_launcher"]["messages"]


def bytes_moved(run):
    return run["from_launcher"]["bytes"] + run["to_launcher"]["bytes"]


def simulate(build, hosts, ranks, script, launcher_options=()):
    """One job; returns what the simulator measured, and the lines and bytes that the launcher printed."""
    binaries = os.path.join(build, "bin")
    with tempfile.TemporaryDirectory() as folder:
        hostfile = os.path.join(folder, "hosts")
        report = os.path.join(folder, "report.json")
        with open(hostfile, "w", encoding="utf-8") as out:
            out.writelines(f"node-{k} slots={ranks}\n" for k in range(hosts))
        command = [
            os.path.join(binaries, "hora-simulated-hosts"),
            report,
            os.path.join(binaries, "horarun-simulated"),
            *("--transport", "simulated", "--hostfile", hostfile, "-np", str(hosts * ranks)),
            # All hosts are one process here, which may get no processor for a while.
            *("--start-timeout", "10m", "--lease", "5m", *launcher_options, "simulated-rank", *script),
        ]
        with subprocess.Popen(["wc", "-lc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as count:
            done = subprocess.run(command, stdout=count.stdin, stderr=subprocess.PIPE, text=True, timeout=1200)
            lines, written = map(int, count.communicate()[0].split())
        if done.returncode != 0:
            sys.exit(f"bench_launcher: {hosts} hosts: exit code {done.returncode}\n{done.stderr[-4000:]}")
        with open(report, encoding="utf-8") as taken:
            return json.load(taken) | {"lines": lines, "written": written}


def show_watching(build, hosts, ranks, rounds, seconds):
    """What the launcher pays for figures of the ranks, as of --progress; jobs with and without them in turns."""
    cpu = {"": [], "--progress": []}
    for turn in range(rounds):
        for option in list(cpu)[:: 1 if turn % 2 == 0 else -1]:
            run = simulate(build, hosts, ranks, ["--for", str(1000 * seconds)], filter(None, [option]))
            cpu[option].append(run["cpu_s"] - run["steps"]["started"]["last_cpu_s"])
    least = {option: min(each) for option, each in cpu.items()}
    share = (least["--progress"] - least[""]) / seconds
    print(
        f"{hosts:,} hosts with {ranks} ranks each, {seconds} s, from the last start on, least of {rounds}: "
        f"{least['']:.3f} s of the launcher's CPU, {least['--progress']:.3f} s with --progress: "
        f"{share:.3%} of a CPU (bar: 0.1%: {'met' if share <= 0.001 else 'MISSED'}); load {os.getloadavg()[0]:.1f}"
    )
    return share <= 0.001


LINE = 80


def show_output(build, hosts, ranks, each):
    """All ranks write `each` bytes at once, in lines. Ends the program if the launcher printed fewer or more lines."""
    run = simulate(build, hosts, ranks, ["--for", "200", "--output", str(each // LINE * LINE), "--line", str(LINE)])
    expected = hosts * ranks * (each // LINE)
    if run["lines"] != expected:
        sys.exit(f"bench_launcher: {expected:,} lines were written, {run['lines']:,} were printed")
    # The launcher works from the first rank's start on; the hosts share its processors.
    wall = run["wall_s"] - run["steps"]["started"]["first_s"]
    cpu = run["cpu_s"] - run["steps"]["started"]["first_cpu_s"]
    megabytes = expected * LINE / 1e6
    print(
        f"{hosts * ranks:,} ranks on {hosts:,} hosts wrote {megabytes:.0f} MB: {run['written'] / 1e6:.0f} MB with the "
        f"prefixes, {run['lines']:,} lines, none lost; {wall:.1f} s from the first start, {cpu:.2f} s of the "
        f"launcher's CPU: {megabytes / cpu:.0f} MB per second of it; {run['max_rss_mib']:.0f} MiB; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--hosts", default="100,1000,3000,10000")
    parser.add_argument("--ranks", type=int, default=8, help="per host")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write every run there")
    parser.add_argument("--output", type=int, metavar="BYTES", help="only this: every rank writes so much")
    parser.add_argument("--watching", type=int, metavar="SECONDS", help="only this: what --progress costs")
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.hosts.split(","))
    if options.watching:
        met = [show_watching(options.build, size, options.ranks, options.rounds, options.watching) for size in sizes]
        return 0 if all(met) else 1
    if options.output:
        for size in sizes:
            show_output(options.build, size, options.ranks, options.output)
        return 0
    runs = {size: [] for size in sizes}
    for _ in range(options.rounds):
        for size in sizes:
            runs[size].append(simulate(options.build, size, options.ranks, ["--for", "200"]))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(runs, out, indent=1)

    medians = {
        size: {cost: statistics.median(take(run) for run in runs[size]) for cost, take in COSTS.items()}
        for size in sizes
    }
    print(f"{options.ranks} ranks per host, medians of {options.rounds}, load {os.getloadavg()[0]:.1f}\n")
    print("| hosts | wall | CPU until started | CPU in all | memory | descriptors | messages | bytes |")
    print("|---|---|---|---|---|---|---|---|")
    for size in sizes:
        row = medians[size]
        wall = statistics.median(run["wall_s"] for run in runs[size])
        print(
            f"| {size:,} | {wall:.2f} s | {row['CPU until started']:.2f} s | {row['CPU in all']:.2f} s | "
            f"{row['memory']:.0f} MiB | {runs[size][0]['descriptors']:,} | {row['messages']:,.0f} | "
            f"{row['bytes'] / 1e6:.1f} MB |"
        )
    if len(sizes) > 1:
        grown = ", ".join(f"{cost} {slope:.2f}" for cost, slope in exponents(sizes, medians, COSTS).items())
        print(f"\ngrowth from {sizes[-2]:,} to {sizes[-1]:,} hosts (1 is linear): {grown}")
    missed = 0
    for size in sizes:
        if size not in BARS:
            continue
        cpu, memory = BARS[size]
        met = medians[size]["CPU until started"] <= cpu and medians[size]["memory"] <= memory
        missed += not met
        print(f"bar at {size:,} hosts: {cpu:g} s of CPU until started, {memory} MiB: {'met' if met else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
