#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a launch takes, next to its peers, in one run.  Called by ./run.

  local    /bin/true on this machine at np = 1, 4, 16, 64, 128
  busy     the same next to 0, 1, 2 and 4 processes that never wait (--loops), with the switches between processes
  hosts    /bin/true over ssh on 1 and 16 test hosts, 1 and 4 ranks each, cold and warm cache; --rtt: with
           a round trip of that many ms from this machine, and twice that from each other; horarun also on every
           node (`/bin/true` by the same command on all of them, as platforms start it), with a secret and without
  memory   resident memory and open descriptors of launcher and agent in a job of 64 ranks
  soak     1,000 jobs of 32 ranks: none may hang

Contestants take turns within each round, in an order that changes, so that a busy spell of the
machine hits them alike. What is printed are medians; the JSON has every single time.
"""

import argparse
import itertools
import json
import os
import platform
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "..", "support", "hosts")
LIMIT_S = 60.0

sys.path.insert(0, os.path.join(HERE, ".."))
from background import background  # noqa: E402


class Hang(Exception):
    pass


class Crash(Exception):
    pass


def once(command):
    """Seconds, or Hang or Crash. Every contestant must succeed: a quick failure is not a time."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", close_fds=False
    )
    try:
        _, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Hang(f"no end within {LIMIT_S:g} s: {' '.join(command)}") from None
    seconds = time.perf_counter() - began
    if process.returncode < 0:
        raise Crash(f"signal {-process.returncode}: {' '.join(command)}")
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}\n{errors.decode(errors='replace')}")
    return seconds


def once_of(name, command):
    """As once(), but a peer that crashes may try again: Hydra dies of SIGPIPE now and then."""
    for _ in range(3):
        try:
            return once(command)
        except Crash as crash:
            if name in ("horarun", "other build"):
                raise
            print(f"  {crash}; once more", file=sys.stderr)
    return once(command)


def compare(contestants, rounds, before=lambda name: None):
    """name -> times. One untimed round first. A contestant that hangs is out, with its count of hangs."""
    times = {name: [] for name in contestants}
    hangs = dict.fromkeys(contestants, 0)
    order = random.Random(1)
    for turn in range(rounds + 1):
        names = list(contestants)
        order.shuffle(names)
        for name in names:
            if hangs[name]:
                continue
            before(name)
            try:
                seconds = once_of(name, contestants[name])
                if turn:
                    times[name].append(seconds)
            except Hang as hang:
                print(f"  {hang}", file=sys.stderr)
                hangs[name] += 1
    return {
        name: {
            "median_ms": round(1000 * statistics.median(t), 2) if t else None,
            "min_ms": round(1000 * min(t), 2) if t else None,
            "p90_ms": round(1000 * sorted(t)[int(0.9 * (len(t) - 1))], 2) if t else None,
            "hangs": hangs[name],
            "times_ms": [round(1000 * x, 3) for x in t],
        }
        for name, t in times.items()
    }


def show(title, rows, names):
    """rows: (label, result by name). Ratios are peer / horarun: above 1, horarun is faster."""
    print(f"\n{title}\n")
    print("| | " + " | ".join(names) + " | " + " | ".join(f"{n} / horarun" for n in names[1:]) + " |")
    print("|---" * (2 * len(names)) + "|")
    for label, result in rows:
        median = {n: (result.get(n) or {}).get("median_ms") for n in names}
        cells = [f"{median[n]:.1f} ms" if median[n] else ("hung" if n in result else "-") for n in names]
        ratios = [f"{median[n] / median['horarun']:.2f}" if median[n] and median["horarun"] else "-" for n in names[1:]]
        print(f"| {label} | " + " | ".join(cells + ratios) + " |", flush=True)


def local_contestants(options, count):
    contestants = {
        "horarun": [options.horarun, "-np", str(count), "/bin/true"],
        "mpiexec.hydra": ["mpiexec.hydra", "-n", str(count), "/bin/true"],
        "mpirun": ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(count), "/bin/true"],
        "spawn loop": [options.spawn_loop, str(count), "/bin/true"],
    }
    if options.other:
        contestants["other build"] = [options.other, "-np", str(count), "/bin/true"]
    return {n: c for n, c in contestants.items() if shutil.which(c[0])}


def switches(name, command, runs=10):
    """Of a launch and all its processes, in the median: how often one of them waited for another (voluntary), and
    how often the kernel took the processor away."""
    seen = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        once_of(name, command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seen.append((after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw))
    return [statistics.median(column) for column in zip(*seen)]


def busy(options):
    names = ["horarun", *(["other build"] if options.other else []), "mpiexec.hydra", "mpirun"]
    rows = []
    for loops in options.loops:
        with background(loops):
            for count in options.np:
                contestants = local_contestants(options, count)
                contestants.pop("spawn loop", None)
                # mpirun takes seconds there, and hangs at some of these sizes.
                if count > 16:
                    contestants.pop("mpirun", None)
                rows.append((f"{loops} loops, np={count}", compare(contestants, options.rounds)))
    show("/bin/true on this machine next to processes that never wait", rows, names)
    waits = {}
    print("\nhow often a process of a launch waits for another one\n")
    for count in options.np:
        contestants = local_contestants(options, count)
        waits[count] = {name: switches(name, contestants[name])[0] for name in names[:-1] if name in contestants}
        print(f"  np={count}: " + ", ".join(f"{name} {number:.0f}" for name, number in waits[count].items()))
    return {"rows": dict(rows), "waits": waits}


def local(options):
    names = ["horarun", *(["other build"] if options.other else []), "mpiexec.hydra", "mpirun", "spawn loop"]
    rows = []
    for count in options.np:
        rows.append((f"np={count}", compare(local_contestants(options, count), options.rounds)))
    show("/bin/true on this machine", rows, names)
    responses = {}
    for label, result in rows:
        ours, floor = result["horarun"]["median_ms"], result["spawn loop"]["median_ms"]
        hydra = result.get("mpiexec.hydra", {}).get("median_ms")
        responses[label] = {
            "bar_ms": round(10 + 1.2 * floor, 1),
            "ours_ms": ours,
            "within_bar": ours <= 10 + 1.2 * floor,
            "no_slower_than_hydra": hydra is None or ours <= hydra,
        }
    print("\nbar: 10 ms + 1.2 x spawn loop; no slower than Hydra\n")
    for label, response in responses.items():
        print(
            f"  {label}: {response['ours_ms']:.1f} ms, bar {response['bar_ms']:.1f} ms: "
            f"{'ok' if response['within_bar'] else 'MISSED'}; "
            f"Hydra: {'ok' if response['no_slower_than_hydra'] else 'MISSED'}"
        )
    return {"rows": dict(rows), "responses": responses}


def on_every_node(horarun, nodes, ranks, token):
    """As a platform starts it: the same command on all of them, at one time, with the variables of SkyPilot."""
    status = json.loads(subprocess.run([HOSTS, "status", "--json"], check=True, capture_output=True, text=True).stdout)
    script = f"export SKYPILOT_NUM_GPUS_PER_NODE={ranks} SKYPILOT_TASK_ID=t {token}=0123456789abcdef0123456789abcdef; "
    script += 'export SKYPILOT_NODE_IPS="' + " ".join(nodes) + '"; '
    for k in range(len(nodes)):
        enter = f"nsenter -t {status['init'][str(k + 1)][0]} -m -u -i -n -p --wd=/ --"
        script += f'SKYPILOT_NODE_RANK={k} {enter} {horarun} /bin/true & all="$all $!"; '
    return ["sh", "-c", script + "for each in $all; do wait $each || exit; done"]


def hosts(options):
    if os.environ.get("HORA_HOSTS_WORLD") != "1":
        return {"skipped": "no test hosts (needs root)"}
    names = ["horarun", *(["other build"] if options.other else []), "horarun cold", "on every node", "no secret"]
    names += ["mpiexec.hydra", "mpirun", "ssh"]
    here, shown = (os.path.realpath(os.path.join(folder, "..", "..")) for folder in (HERE + "/..", options.horarun))
    rows = []
    for count, rtt in itertools.product(options.hosts, options.rtt):
        subprocess.run([HOSTS, "up", str(count), "--hide", here, "--show", shown], check=True)
        try:
            nodes = [f"node{k}" for k in range(1, count + 1)]
            for node in nodes:
                subprocess.run([HOSTS, "netem", node, "--delay", str(rtt / 2)], check=True)
            # Another host's name would be taken for this machine's, were it not in known_hosts.
            for ranks in options.ranks:
                spec = ",".join(f"{node}:{ranks}" for node in nodes)
                ours = [options.horarun, "-H", spec, "/bin/true"]
                contestants = {
                    "horarun": ours,
                    "horarun cold": ours,
                    "mpiexec.hydra": ["mpiexec.hydra", "-hosts", spec, "-n", str(count * ranks), "/bin/true"],
                    "mpirun": [
                        "mpirun",
                        "--allow-run-as-root",
                        "--oversubscribe",
                        "-H",
                        spec,
                        "-np",
                        str(count * ranks),
                        "/bin/true",
                    ],
                    "ssh": ["sh", "-c", "".join(f"ssh {node} true & " for node in nodes) + "wait"],
                }
                if count > 1:
                    contestants["on every node"] = on_every_node(options.horarun, nodes, ranks, "HORA_JOIN_TOKEN")
                    contestants["no secret"] = on_every_node(options.horarun, nodes, ranks, "UNUSED")
                if options.other:
                    contestants["other build"] = [options.other, *ours[1:]]
                contestants = {n: c for n, c in contestants.items() if shutil.which(c[0])}

                def forget(name):
                    """The cold launch finds nothing of ours; the next warm one finds all of it."""
                    if name == "horarun cold":
                        for node in nodes:
                            subprocess.run([HOSTS, "exec", node, "rm", "-rf", "/root/.cache/hora"], check=True)

                label = f"{count} hosts x {ranks}" + (f", {rtt:g} ms" if rtt else "")
                rows.append((label, compare(contestants, options.rounds_hosts, forget)))
        finally:
            subprocess.run([HOSTS, "down"], check=True, stdout=subprocess.DEVNULL)
    show("/bin/true over ssh", rows, names)
    return {"rows": dict(rows)}


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        text = file.read()

    def value(key):
        return int(re.search(rf"^{key}:\s+(\d+)", text, re.M)[1])

    with open(f"/proc/{pid}/smaps_rollup") as file:
        pss = int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1])
    return {
        "rss_mib": round(value("VmRSS") / 1024, 1),
        "peak_rss_mib": round(value("VmHWM") / 1024, 1),
        "pss_mib": round(pss / 1024, 1),
        "threads": value("Threads"),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def memory(options):
    """While 64 ranks run and have printed some."""
    process = subprocess.Popen(
        [options.horarun, "-np", "64", "sh", "-c", "seq 1 2000; echo settled; exec sleep 60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    try:
        settled, deadline = 0, time.monotonic() + LIMIT_S
        while settled < 64:
            line = process.stdout.readline()
            settled += b"settled" in line
            if not line or time.monotonic() > deadline:
                raise RuntimeError("the job of 64 ranks did not start")
        result = {"launcher": status_of(process.pid)}
        waiting, seen = [process.pid], []
        while waiting:
            pid = waiting.pop()
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                waiting += map(int, file.read().split())
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"hora-agent" in file.read().split(b"\0")[0]:
                    seen.append(pid)
        for number, pid in enumerate(sorted(seen)):
            result[("shim", "agent")[number] if len(seen) == 2 else f"agent process {number}"] = status_of(pid)
    finally:
        process.terminate()
        process.communicate()
    print("\njob of 64 ranks on this machine (bar: 30 MiB each)\n")
    print("| | resident | peak | proportional | threads | descriptors |\n|---|---|---|---|---|---|")
    for name, row in result.items():
        print(
            f"| {name} | {row['rss_mib']} MiB | {row['peak_rss_mib']} MiB | {row['pss_mib']} MiB "
            f"| {row['threads']} | {row['descriptors']} |"
        )
    return result


def soak(options):
    times, failures = [], []
    for number in range(options.soak_runs):
        try:
            times.append(once([options.horarun, "-np", "32", "/bin/true"]))
        except (Hang, RuntimeError) as error:
            failures.append(f"run {number}: {error}")
            print("  " + failures[-1], file=sys.stderr)
    result = {
        "runs": options.soak_runs,
        "failures": failures,
        "median_ms": round(1000 * statistics.median(times), 2),
        "max_ms": round(1000 * max(times), 2),
    }
    print(
        f"\n{options.soak_runs} x horarun -np 32 /bin/true: {len(failures)} failed or hung; median "
        f"{result['median_ms']} ms, longest {result['max_ms']} ms"
    )
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", default=["local", "hosts", "memory"], choices=["local", "busy", "hosts", "memory", "soak"]
    )
    parser.add_argument("--horarun", required=True)
    parser.add_argument("--spawn-loop", required=True)
    parser.add_argument("--other", metavar="HORARUN", help="of another build, for local, busy and hosts")
    parser.add_argument("--json", metavar="FILE")

    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser.add_argument("--np", type=numbers, default=[1, 4, 16, 64, 128])
    parser.add_argument("--loops", type=numbers, default=[0, 1, 2, 4])
    parser.add_argument("--hosts", type=numbers, default=[1, 16])
    parser.add_argument(
        "--rtt", type=lambda text: [float(part) for part in text.split(",")], default=[0], metavar="MS,..."
    )
    parser.add_argument("--ranks", type=numbers, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rounds-hosts", type=int, default=7)
    parser.add_argument("--soak-runs", type=int, default=1000)
    options = parser.parse_args()
    report = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    for part in options.parts:
        report[part] = {"local": local, "busy": busy, "hosts": hosts, "memory": memory, "soak": soak}[part](options)
    if options.json:
        os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
        print(f"\nevery time: {options.json}")


if __name__ == "__main__":
    main()
