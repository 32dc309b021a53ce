#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce latency from Python, ResNet-50's gradient set and a training step that has no other cost,
against torch.distributed's gloo and DistributedDataParallel in the same run.

    HORA_BUILD_DIR=build/release tests/benchmark/python/collectives.py [--quick] [--json] [np ...]

The columns "ratio" and "c10d" say how many times as long gloo takes as hora.torch and as the backend "hora" of
torch.distributed, in a training step for the communication alone; the bar is that of design: at np=2 8 times for 4
bytes, 4 times for 64 MiB.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from support import job

RANK = pathlib.Path(__file__).with_name("collectives_rank.py")
BARS = {(2, "allreduce 4 B"): 8, (2, "allreduce 64 MiB"): 4, (2, "ResNet-50 gradients"): 5}


def measure(np, quick, python):
    finished = job.run_python(np, RANK, *(["--quick"] if quick else []), timeout=900, python=python)
    if finished.code != 0 or finished.timed_out:
        raise SystemExit(f"the job with {np} ranks failed: {finished}")
    line = next(line for line in finished.out.splitlines() if "{" in line)
    return json.loads(line[line.index("{") :])


def table(result):
    print(
        f"\n{result['ranks']} ranks on {result['cores']} cores, torch {result['torch']}: "
        "microseconds, median (least) of the slowest rank"
    )
    names = ("hora.torch", "hora.numpy", "hora.c10d", "gloo")
    print(f"  {'':22}" + "".join(name.rjust(20) for name in names) + f"{'ratio':>8}{'bar':>6}{'c10d':>8}")
    for what, columns in result["seconds"].items():
        cells = ""
        for name in names:
            cell = columns.get(name)
            cells += f"{cell['median'] * 1e6:11.1f} ({cell['least'] * 1e6:.1f})".rjust(20) if cell else " " * 20
        # Of a training step, what it takes more than one without communication.
        alone = columns.get("no communication", {"median": 0})["median"]
        theirs = columns["gloo"]["median"] - alone
        ratio, of_backend = (theirs / (columns[name]["median"] - alone) for name in ("hora.torch", "hora.c10d"))
        bar = BARS.get((result["ranks"], what))
        print(f"  {what:22}{cells}{ratio:8.2f}{bar if bar else '':>6}{of_backend:8.2f}")
        if alone:
            print(f"  {'  without communication':22}{alone * 1e6:11.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("np", nargs="*", type=int, default=[2, 4])
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object for each np")
    parser.add_argument("--python", default=sys.executable, help="the Python of the ranks")
    args = parser.parse_args()
    for np in args.np:
        result = measure(np, args.quick, args.python)
        print(json.dumps(result)) if args.json else table(result)


if __name__ == "__main__":
    main()
