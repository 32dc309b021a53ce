#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce latency from Python, ResNet-50's gradient set and a training step that has no other cost,
against torch.distributed's gloo and DistributedDataParallel in the same run.

    HORA_BUILD_DIR=build/release tests/benchmark/python/collectives.py [--quick] [--json] [np ...]

The last column says how many times as long gloo takes; the bar is that of design: at np=2 8 times
for 4 bytes, 4 times for 64 MiB.
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
    print(f"  {'':22}{'hora.torch':>20}{'hora.numpy':>20}{'torch gloo':>20}{'ratio':>8}{'bar':>6}")
    alone = result["seconds"]["ResNet-50 step, DDP"].pop("no communication")
    for what, columns in result["seconds"].items():
        cells = ""
        for name in ("hora.torch", "hora.numpy", "gloo"):
            cell = columns.get(name)
            cells += f"{cell['median'] * 1e6:11.1f} ({cell['least'] * 1e6:.1f})".rjust(20) if cell else " " * 20
        ratio = columns["gloo"]["median"] / columns["hora.torch"]["median"]
        bar = BARS.get((result["ranks"], what))
        print(f"  {what:22}{cells}{ratio:8.2f}{bar if bar else '':>6}")
    print(f"  the step without communication: {alone['median'] * 1e6:.1f} ({alone['least'] * 1e6:.1f})")


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
