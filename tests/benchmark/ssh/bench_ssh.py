#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connect to hosts by ssh and start something there: Hora's transport next to the OpenSSH client, in
one run.  Called by ./run.

  ours warm    connect to every host at once, start the cached agent, have its Hello
  ours cold    the same with an empty cache on every host: the agent is shipped
  openssh      `ssh HOST true` for every host at once
  curve25519   the same without its post-quantum key exchange, which is most of its processor time

Contestants take turns within each round, in an order that changes. Medians are printed; the time
is that of the whole program, from its start to its end.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "..", "support", "hosts")
LIMIT_S = 120


def fail_unless(condition, text):
    if not condition:
        sys.exit(f"bench_ssh: {text}")


def ours(probe, agent, names):
    with open(agent, "rb") as file:
        sha = hashlib.sha256(file.read()).hexdigest()
    command = [probe, "--agent", agent, "--sha", sha]
    for name in names:
        command += ["--host", name]

    def once():
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        seconds = time.perf_counter() - began
        hellos = sum('"result":"hello"' in line for line in done.stdout.splitlines())
        fail_unless(done.returncode == 0 and hellos == len(names), f"{done.stdout}{done.stderr}")
        return seconds

    return once


def openssh(names, *options):
    def once():
        began = time.perf_counter()
        running = [subprocess.Popen(["ssh", *options, name, "true"], stdin=subprocess.DEVNULL) for name in names]
        codes = [process.wait(timeout=LIMIT_S) for process in running]
        fail_unless(not any(codes), f"ssh: {codes}")
        return time.perf_counter() - began

    return once


def empty_caches(count):
    for k in range(1, count + 1):
        subprocess.run([HOSTS, "exec", str(k), "sh", "-c", "rm -rf ~/.cache"], check=True)


def measure(arguments, count):
    names = [f"node{k}" for k in range(1, count + 1)]
    warm = ours(arguments.probe, arguments.agent, names)
    contestants = {
        "ours warm": warm,
        "ours cold": warm,
        "openssh": openssh(names),
        "curve25519": openssh(names, "-o", "KexAlgorithms=curve25519-sha256"),
    }
    times = {name: [] for name in contestants}
    order = random.Random(1)
    for turn in range(arguments.rounds + 1):
        turns = list(contestants)
        order.shuffle(turns)
        for name in turns:
            if name == "ours cold":
                empty_caches(count)
            elif name == "ours warm" and turn == 0:
                warm()
            seconds = contestants[name]()
            if turn:  # the first round warms up
                times[name].append(seconds)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--hosts", default="1,16")
    arguments = parser.parse_args()
    arguments.probe = os.path.join(arguments.build, "bin", "hora-transport-probe")
    arguments.agent = os.path.join(arguments.build, "share", "hora", os.uname().machine, "agent", "hora-agent")
    results = {}
    for count in map(int, arguments.hosts.split(",")):
        subprocess.run(
            [HOSTS, "up", str(count), "--hide", os.path.join(HERE, "..", "..", "..")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        try:
            times = measure(arguments, count)
        finally:
            subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)
        results[count] = times
        base = statistics.median(times["openssh"])
        print(f"{count} host(s), {arguments.rounds} rounds")
        for name, values in times.items():
            median = statistics.median(values)
            print(
                f"  {name:<12} {median * 1e3:8.1f} ms   (best {min(values) * 1e3:.1f})   "
                f"openssh / this = {base / median:.2f}"
            )
        ratio = base / statistics.median(times["ours warm"])
        print(
            f"  bar: at least 3 times as fast as the OpenSSH client: {ratio:.2f} "
            f"{'reached' if ratio >= 3 else 'MISSED'}"
        )
    os.makedirs(os.path.join(arguments.build, "benchmark"), exist_ok=True)
    with open(os.path.join(arguments.build, "benchmark", "ssh.json"), "w") as file:
        json.dump({"unit": "seconds", "rounds": arguments.rounds, "times": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
