#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs in an allocation of Slurm: horarun next to srun and mpirun, in one run.  Called by ./run.

  horarun      /bin/true, two ranks on each node, after a first job that left the runtime there
  cold         the same with an empty cache on every node
  srun         `srun /bin/true`: as many tasks, as one step
  mpirun       Open MPI, which starts its daemons by srun
  in, out      32 MiB to the standard input of one rank, 20 MB from its standard output
  leaving      until nothing is left of a job that is ended in five ways (leaving.py)

Contestants take turns within each round, in an order that changes. Medians are printed, and of the
differences between horarun and srun the median over the rounds. The time is that of the whole
command, from its start to its end.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "integration"))
import slurm
from leaving import leaving, show_leaving

import conftest

LIMIT_S = 120
SLOTS = 2  # on each node
BYTES_IN, BYTES_OUT = 32 << 20, 20_000_000
MARGIN_S = 0.2  # over srun
FORGET = "rm -rf ~/.cache/hora /tmp/hora-* /dev/shm/hora-*"


def timed(command, environment, data=b"", expected=b""):
    """Seconds. A command that fails, or says something else, is not a contestant."""
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, input=data, capture_output=True, cwd="/", timeout=LIMIT_S)
    seconds = time.perf_counter() - began
    if done.returncode or done.stdout != expected:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}, {len(done.stdout)} bytes\n{done.stderr.decode()}")
    return seconds


def compare(contestants, rounds, before):
    """name -> times, one for each round. One round that does not count comes first."""
    times = {name: [] for name in contestants}
    order = random.Random(1)
    for turn in range(rounds + 1):
        names = list(contestants)
        order.shuffle(names)
        for name in names:
            before(name)
            seconds = contestants[name]()
            if turn:
                times[name].append(seconds)
    return times


def launches(options, cluster, environment):
    nodes = len(cluster.hosts.names)
    ranks = str(SLOTS * nodes)
    ours = [os.path.join(options.build, "bin", "horarun"), "/bin/true"]
    commands = {
        "horarun": ours,
        "cold": ours,
        "srun": ["srun", "/bin/true"],
        "mpirun": ["mpirun", "--allow-run-as-root", "-np", ranks, "/bin/true"],
    }

    def before(name):
        if name == "cold":
            for k in range(1, nodes + 1):
                cluster.hosts.execute(k, "sh", "-c", FORGET)
        elif name == "horarun":
            timed(ours, environment)  # it is warm, whatever ran before

    contestants = {
        name: lambda command=command: timed(command, environment)
        for name, command in commands.items()
        if shutil.which(command[0], path=environment["PATH"])
    }
    return compare(contestants, options.rounds, before)


def stream_in(command, environment):
    """A command that changes the data is not a contestant."""
    data = os.urandom(BYTES_IN)
    answer = hashlib.sha256(data).hexdigest().encode() + b"  -\n"
    return lambda: timed([*command, "sha256sum"], environment, data, answer)


def stream_out(command, environment):
    zeros = f"head -c {BYTES_OUT} /dev/zero; echo"
    return lambda: timed([*command, "sh", "-c", zeros], environment, b"", bytes(BYTES_OUT) + b"\n")


def both_streams(name, command, environment):
    return {f"{name} in": stream_in(command, environment), f"{name} out": stream_out(command, environment)}


def own_streams(build, environment, options=()):
    """Through one rank of horarun."""
    ours = [os.path.join(build, "bin", "horarun"), *options, "--no-prefix-output", "-np", "1"]
    return both_streams("horarun", ours, environment)


def streams(options, environment):
    peer = ["srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--unbuffered", "--quiet"]
    contestants = {**own_streams(options.build, environment), **both_streams("srun", peer, environment)}
    return compare(contestants, options.rounds, lambda name: None)


def show_medians(title, times, options):
    print(f"\n{title}, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:<12} {median * 1e3:8.1f} ms   (best {min(values) * 1e3:.1f})", flush=True)


def show(count, times, options):
    median = {name: statistics.median(values) for name, values in times.items()}
    show_medians(f"{count} nodes", times, options)
    if "horarun in" in times:
        for way, size in (("in", BYTES_IN), ("out", BYTES_OUT)):
            ratio = median[f"srun {way}"] / median[f"horarun {way}"]
            print(f"  {way}: {size / median[f'horarun {way}'] / 1e6:.0f} MB/s; srun / horarun = {ratio:.2f}")
        return
    over = statistics.median(ours - theirs for ours, theirs in zip(times["horarun"], times["srun"]))
    print(f"  bar: srun + {MARGIN_S} s: {over * 1e3:+.1f} ms {'reached' if over <= MARGIN_S else 'MISSED'}")
    if "mpirun" in median:
        ratio = median["mpirun"] / median["horarun"]
        print(f"  bar: half of mpirun: mpirun / horarun = {ratio:.2f} {'reached' if ratio >= 2 else 'MISSED'}")


def measure(options, factory, count):
    folder = tempfile.mkdtemp(prefix="hora-bench.", dir="/var/tmp")
    os.chmod(folder, 0o755)
    cluster = slurm.Cluster(factory(count), folder)
    results = {}
    try:
        held = cluster.allocate(f"-N{count}", f"--ntasks-per-node={SLOTS}")
        environment = {**cluster.environment, **held.variables}
        if options.rounds:
            results["launches"] = launches(options, cluster, environment)
            show(count, results["launches"], options)
        if options.streams and options.rounds:
            results["streams"] = streams(options, environment)
            show(count, results["streams"], options)
        held.close()
        if options.leaving:
            results["leaving"] = leaving(options.build, cluster, options.leaving)
            show_leaving(count, results["leaving"])
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def write(options, name, results):
    os.makedirs(os.path.join(options.build, "benchmark"), exist_ok=True)
    with open(os.path.join(options.build, "benchmark", name), "w") as file:
        json.dump({"unit": "seconds", "rounds": options.rounds, "times": results}, file, indent=1)


def parser_of(about):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=11, help="of launches and streams; 0: neither")
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--nodes", default="4,16")
    parser.add_argument("--leaving", type=int, default=5, metavar="ROUNDS", help="0: not")
    parser.add_argument("--no-streams", dest="streams", action="store_false")
    options = parser.parse_args()
    if why := slurm.missing():
        sys.exit(why)
    factory = conftest.HostFactory()
    try:
        results = {count: measure(options, factory, count) for count in map(int, options.nodes.split(","))}
    finally:
        factory.down()
    write(options, "engines.json", results)


if __name__ == "__main__":
    main()
