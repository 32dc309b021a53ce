#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   mpi4py 4.1.2 with MPICH 5.0.2 and NumPy 2.4.6; Open MPI 5.0.11 behaves alike
# behaviour: allreduce of objects uses Python's own operators: a sum of True on two ranks is 2, that of numpy.bool_(True) is
#            True; the maximum of a NaN and a number is the NaN if rank 0 has it, and the number if rank 1 has it; a sum
#            of lists is one list.
# guess:     a reduction of a bool counts, be it of Python or of NumPy; a maximum does not depend on the rank
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, which says so: hvd.allreduce keeps a NaN, and the sum of booleans is an or
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6 || { echo "needs PyPI"; exit 77; }
seen=$(PATH=$folder/bin:$PATH timeout 120 mpiexec -n 2 "$folder/bin/python" -c '
from mpi4py import MPI
import numpy as np

world = MPI.COMM_WORLD
results = {
    "True": world.allreduce(True),
    "numpy.bool_": world.allreduce(np.bool_(True)).item(),
    "numpy > 0": world.allreduce(np.float64(1) > 0).item(),
    "list": world.allreduce([world.rank]),
    "max, NaN on 0": world.allreduce(1.0 if world.rank else float("nan"), op=MPI.MAX),
    "max, NaN on 1": world.allreduce(float("nan") if world.rank else 1.0, op=MPI.MAX),
}
if world.rank == 0:
    print(results)
')
echo "$seen"
[ "$seen" = "{'True': 2, 'numpy.bool_': True, 'numpy > 0': True, 'list': [0, 1], 'max, NaN on 0': nan, 'max, NaN on 1': 1.0}" ] ||
  { echo "reductions no longer behave as described" >&2; exit 1; }
