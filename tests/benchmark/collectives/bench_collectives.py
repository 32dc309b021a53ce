#!/usr/bin/env python3
"""Allreduce of float32 on one host: hora-perf beside Open MPI, Gloo and torch.distributed's gloo.

Peers take turns, round by round; a figure is the median over the rounds of the slowest rank's median.
A ratio says how many times as long the peer takes: above 1 we are faster.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [4, 64, 1024, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
DEBIAN_PYTHON = "/usr/bin/python3"


def run(argv, timeout):
    """What the command prints, or why it failed."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"took longer than {timeout} s"
    if done.returncode != 0:
        return None, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    return done.stdout, None


class Peers:
    def __init__(self, build, timeout):
        self.timeout = timeout
        self.bin = os.path.join(build, "bin")
        self.runners = {"hora": self.hora}
        if os.access(os.path.join(self.bin, "allreduce_mpi"), os.X_OK) and shutil.which("mpirun"):
            self.runners["open mpi"] = self.mpi
        if os.access(os.path.join(self.bin, "allreduce_gloo"), os.X_OK):
            self.runners["gloo"] = self.gloo
        if run([DEBIAN_PYTHON, "-c", "import torch.distributed"], 60)[1] is None:
            self.runners["torch gloo"] = self.torch

    def hora(self, np):
        sizes = ",".join(map(str, SIZES))
        text, why = run(self.horarun_argv(np, "hora-perf", "allreduce", "--sizes", sizes, "--seconds", "0.3", "--csv",
                                          "--no-check"), self.timeout)
        if text is None:
            return None, why
        rows = [line.split(",") for line in text.splitlines()[1:]]
        return {int(row[5]): float(row[9]) for row in rows}, None

    def horarun_argv(self, np, *command):
        return [os.path.join(self.bin, "horarun"), "-np", str(np), "--no-prefix-output", *command]

    def mpi(self, np):
        return self.pairs(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(np),
                           os.path.join(self.bin, "allreduce_mpi")])

    def gloo(self, np):
        with tempfile.TemporaryDirectory(prefix="hora-bench.") as folder:
            return self.pairs(self.horarun_argv(np, os.path.join(self.bin, "allreduce_gloo"), folder))

    def torch(self, np):
        return self.pairs(self.horarun_argv(np, DEBIAN_PYTHON, os.path.join(HERE, "allreduce_torch.py"),
                                            ",".join(map(str, SIZES))))

    def pairs(self, argv):
        text, why = run(argv, self.timeout)
        if text is None:
            return None, why
        return {int(size): float(us) for size, us in (line.split() for line in text.splitlines() if line)}, None


def name_of(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def figure(us):
    return f"{us:.1f}" if us < 1000 else f"{us / 1000:.2f} ms"


def times(ratio):
    return f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--np", default="2,4", help="numbers of ranks (default 2,4)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="peers, e.g. hora,gloo")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one job (default 300)")
    parser.add_argument("--json", help="every single figure goes there")
    arguments = parser.parse_args()
    peers = Peers(arguments.build, arguments.timeout)
    chosen = [name for name in peers.runners if not arguments.only or name in arguments.only.split(",")]
    record = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "runs": []}
    for np in map(int, arguments.np.split(",")):
        found = {name: {} for name in chosen}
        for _ in range(arguments.rounds):
            for name in chosen:
                result, why = peers.runners[name](np)
                if result is None:
                    print(f"{name}, np={np}: {why}", file=sys.stderr)
                    continue
                record["runs"].append({"peer": name, "np": np, "us": result})
                for size, us in result.items():
                    found[name].setdefault(size, []).append(us)
        print(f"\nallreduce of float32, {np} ranks on {record['cores']} cores, load {record['load']:.1f} at the start: "
              "microseconds; x: how many times as long as hora")
        print("| bytes | " + " | ".join(name if name == "hora" else f"{name} | x" for name in chosen) + " |")
        print("|---" * (2 * len(chosen) - ("hora" in chosen) + 1) + "|")
        for size in SIZES:
            ours = statistics.median(found["hora"][size]) if found.get("hora", {}).get(size) else None
            cells = [name_of(size)]
            for name in chosen:
                values = found[name].get(size)
                cells.append(figure(statistics.median(values)) if values else "-")
                if name != "hora":
                    cells.append(times(statistics.median(values) / ours) if values and ours else "-")
            print("| " + " | ".join(cells) + " |", flush=True)
    if arguments.json:
        os.makedirs(os.path.dirname(os.path.abspath(arguments.json)), exist_ok=True)
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()
