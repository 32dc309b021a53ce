#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   MPICH 5.0.2 (mpich, mpi4py 4.1.2)
# behaviour: after MPI_Allreduce of one float with MPI_MAX, where one rank gave a NaN, the ranks have different results: one
#            has the NaN and another has the number.
# guess:     all ranks have the same result of an allreduce
# seen:      2026-11-28: "NaN of rank 0: 1.0 nan", "NaN of rank 1: nan 1.0" (the results of rank 0 and rank 1)
# relies:    collectives/backends/mpi/collectives.cpp: minima and maxima of floats are operators of our own, which keep a NaN
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q mpich==5.0.2 mpi4py==4.1.2
cat >"$folder/ask.py" <<'END'
import array, math
from mpi4py import MPI
world = MPI.COMM_WORLD
for owner in range(world.size):
    given = array.array("f", [math.nan if world.rank == owner else 1.0])
    result = array.array("f", [0.0])
    world.Allreduce([given, MPI.FLOAT], [result, MPI.FLOAT], MPI.MAX)
    results = world.gather(result[0])
    if world.rank == 0:
        print(f"NaN of rank {owner}:", *results, flush=True)
END
seen=$(timeout 120 "$folder/bin/mpiexec" -n 2 "$folder/bin/python" "$folder/ask.py")
echo "$seen"
[ "$seen" = "NaN of rank 0: 1.0 nan
NaN of rank 1: nan 1.0" ] || { echo "MPICH no longer behaves as described" >&2; exit 1; }
