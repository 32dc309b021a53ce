#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First and second launch on test hosts: time, and bytes on the wire.  Called by ./run.

The first launch finds nothing of ours on the hosts, the second one all of it. Two builds take turns within each
round. Times are medians. The bytes are those that this machine's bridge has sent to the hosts, with all headers.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.realpath(os.path.join(HERE, "..", "..", ".."))
HOSTS = os.path.join(REPOSITORY, "tests", "support", "hosts")
CACHES = "/root/.cache/hora /tmp/hora-0 /dev/shm/hora-0"
LIMIT_S = 120


def bridge():
    """The interface whose members are the links to the hosts."""
    for name in os.listdir("/sys/class/net"):
        if os.path.isdir(f"/sys/class/net/{name}/bridge"):
            return name
    sys.exit("bench_ship: no bridge here: no test hosts")


def sent_bytes(interface):
    with open(f"/sys/class/net/{interface}/statistics/tx_bytes") as file:
        return int(file.read())


def forget(nodes):
    each = [subprocess.Popen([HOSTS, "exec", node, "sh", "-c", f"rm -rf {CACHES}"]) for node in nodes]
    for process in each:
        if process.wait(LIMIT_S):
            sys.exit("bench_ship: the caches of the hosts cannot be emptied")


def launch(build, nodes, command, interface):
    """Seconds and bytes of one launch, which must succeed."""
    argv = [os.path.join(build, "bin", "horarun"), "-H", ",".join(f"{node}:1" for node in nodes), *command]
    before, began = sent_bytes(interface), time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", timeout=LIMIT_S)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return seconds, sent_bytes(interface) - before


def measure(builds, nodes, command, rounds):
    """(build, "first" or "second") -> [(seconds, bytes)]. One round before that does not count."""
    interface = bridge()
    results = {(build, which): [] for build in builds for which in ("first", "second")}
    for turn in range(rounds + 1):
        for build in builds if turn % 2 else reversed(builds):
            forget(nodes)
            for which in ("first", "second"):
                result = launch(build, nodes, command, interface)
                if turn:
                    results[build, which].append(result)
    return results


def median(results, field):
    return statistics.median(result[field] for result in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=os.path.abspath, metavar="DIR")
    parser.add_argument("--other", type=os.path.abspath, metavar="DIR", help="the build to compare with")
    parser.add_argument("--hosts", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("command", nargs="*", default=["/bin/true"])
    options = parser.parse_args()
    builds = [options.build] + ([options.other] if options.other else [])
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(f"{options.rounds} rounds of {' '.join(options.command)}\n")
    columns = ["hosts", "", "time", "sent to each host"]
    columns += ["other: time", "sent to each host", "time / other", "bytes / other"] if options.other else []
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    for count in options.hosts:
        hide = [word for folder in {REPOSITORY, *map(os.path.realpath, builds)} for word in ("--hide", folder)]
        subprocess.run([HOSTS, "up", str(count), *hide], check=True, stdout=subprocess.DEVNULL)
        try:
            results = measure(builds, [f"node{k}" for k in range(1, count + 1)], options.command, options.rounds)
        finally:
            subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)
        for which in ("first", "second"):
            seconds = [median(results[build, which], 0) for build in builds]
            sent = [median(results[build, which], 1) / count for build in builds]
            cells = [str(count), which]
            for index in range(len(builds)):
                cells += [f"{1000 * seconds[index]:.0f} ms", f"{sent[index] / 1e6:.3f} MB"]
            if options.other:
                cells += [f"{seconds[0] / seconds[1]:.2f}", f"{sent[0] / sent[1]:.2f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
