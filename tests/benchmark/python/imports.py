#!/usr/bin/env python3
"""What importing our packages costs beyond what they stand on: milliseconds in a new process.

    tests/benchmark/python/imports.py [--python PYTHON] [--turns N]

The bar is 20 ms for horovod.torch beyond torch.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PACKAGES = pathlib.Path(__file__).resolve().parents[3] / "collectives" / "python"
CASES = [("", "hora"), ("numpy", "hora.numpy"), ("torch", "horovod.torch"),
         ("tensorflow", "horovod.tensorflow"), ("keras", "horovod.keras"), ("jax", "hora.jax"),
         ("mxnet", "horovod.mxnet")]
BARS = {"horovod.torch": 20.0}

PROGRAM = """
import importlib, importlib.util, json, sys, time
base, ours = sys.argv[1:3]
if base and importlib.util.find_spec(base) is None:
    sys.exit()
times, before = [], set()
for name in (base, ours):
    before = set(sys.modules)
    begun, cpu = time.perf_counter(), time.process_time()
    if name:
        importlib.import_module(name)
    times += [time.perf_counter() - begun, time.process_time() - cpu]
print("TIMES " + json.dumps([*times, len(set(sys.modules) - before)]))
"""


def measured(python, base, ours, turns):
    """Seconds of both imports (elapsed, of the processor) and the number of modules that ours
    brings, for each turn."""
    rows = []
    for _ in range(turns + 1):  # the first one warms the disk's cache and compiles
        done = subprocess.run([python, "-c", PROGRAM, base, ours], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, stdin=subprocess.DEVNULL,
                              env={"PYTHONPATH": str(PACKAGES), "PATH": "/usr/bin:/bin",
                                   "TF_CPP_MIN_LOG_LEVEL": "3"})
        line = next((line for line in done.stdout.splitlines() if line.startswith("TIMES ")), None)
        if line is None:
            return []
        rows.append(json.loads(line[6:]))
    return rows[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    print(f"{'':20} {'beyond':>12} {'median ms':>10} {'least ms':>9} {'processor ms':>13} "
          f"{'modules':>8} {'beyond: ms':>11} {'bar ms':>7}")
    for base, ours in CASES:
        rows = measured(args.python, base, ours, args.turns)
        if not rows:
            continue
        mine, cpu = [row[2] * 1e3 for row in rows], [row[3] * 1e3 for row in rows]
        print(f"{ours:20} {base or 'Python':>12} {statistics.median(mine):10.1f} {min(mine):9.1f} "
              f"{statistics.median(cpu):13.1f} {rows[0][4]:8} "
              f"{statistics.median(row[0] for row in rows) * 1e3:11.0f} "
              f"{BARS.get(ours, ''):>7}")


if __name__ == "__main__":
    main()
