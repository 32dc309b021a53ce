#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What importing our packages costs beyond what they stand on, in milliseconds: within one process, and
as the difference between processes that import ours and processes that import only what it stands on,
in turns (the order changes from turn to turn).

    tests/benchmark/python/imports.py [--python PYTHON] [--turns N] [MODULE...]

The bar is 20 ms for horovod.torch beyond torch.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PACKAGES = pathlib.Path(__file__).resolve().parents[3] / "collectives" / "python"
CASES = [
    ("ctypes", "hora"),
    ("numpy", "hora.numpy"),
    ("torch", "horovod.torch"),
    ("tensorflow", "horovod.tensorflow"),
    ("keras", "horovod.keras"),
    ("jax", "hora.jax"),
    ("mxnet", "horovod.mxnet"),
]
BARS = {"horovod.torch": 20.0}

PROGRAM = """
import importlib, importlib.util, json, sys, time
if importlib.util.find_spec(sys.argv[1]) is None:
    sys.exit()
rows = []
for name in sys.argv[1:]:
    before = set(sys.modules)
    begun, cpu = time.perf_counter(), time.process_time()
    importlib.import_module(name)
    rows.append([time.perf_counter() - begun, time.process_time() - cpu,
                 len(set(sys.modules) - before)])
print("ROWS " + json.dumps(rows))
"""


def imported(python, *modules):
    """[elapsed seconds, seconds of the processor, modules brought along] of each import, one after the
    other in a new process; None where the first one is not installed."""
    done = subprocess.run(
        [python, "-c", PROGRAM, *modules],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        stdin=subprocess.DEVNULL,
        env={"PYTHONPATH": str(PACKAGES), "PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("ROWS ")), None)
    return None if line is None else json.loads(line[5:])


class Comparison:
    """One of our modules against what it stands on."""

    def __init__(self, python, base, ours, turns):
        self.installed = imported(python, base, ours) is not None  # and warms the disk's cache
        self.beyond, self.cpu, self.together, self.alone = [], [], [], []
        for turn in range(turns if self.installed else 0):
            (_, (elapsed, cpu, self.modules)) = imported(python, base, ours)
            self.beyond.append(elapsed * 1e3)
            self.cpu.append(cpu * 1e3)
            for module, times in sorted([(ours, self.together), (base, self.alone)], reverse=bool(turn % 2)):
                times.append(imported(python, module)[0][0] * 1e3)

    @property
    def difference(self):
        return statistics.median(self.together) - statistics.median(self.alone)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("module", nargs="*", help="those of ours to measure; default: all")
    args = parser.parse_args()
    print(
        f"{'':20} {'beyond':>12} {'median ms':>10} {'least ms':>9} {'processor ms':>13} "
        f"{'modules':>8} {'between processes':>18} {'alone: ms':>10} {'bar ms':>7}"
    )
    for base, ours in CASES:
        if args.module and ours not in args.module:
            continue
        row = Comparison(args.python, base, ours, args.turns)
        if row.installed:
            print(
                f"{ours:20} {base:>12} {statistics.median(row.beyond):10.1f} "
                f"{min(row.beyond):9.1f} {statistics.median(row.cpu):13.1f} {row.modules:8} "
                f"{row.difference:18.1f} {statistics.median(row.alone):10.1f} "
                f"{BARS.get(ours, ''):>7}"
            )


if __name__ == "__main__":
    main()
