#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   mpi4py 4.1.2 with MPICH 5.0.2
# behaviour: Allreduce, Bcast and Allgather send the memory of an array in Fortran's order, such as the transpose of a
#            contiguous one, and of the other end fill that of an array in C's order: the elements are others, without an error.
#            They refuse a slice with steps.
# guess:     element by element, as NumPy assigns; or refused, as other arrays that are not C-contiguous
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; NumpyFramework.dense() in
#            collectives/python/hora/numpy_arrays.py, which copies such arrays to C's order
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q mpi4py==4.1.2 mpich==5.0.2 numpy || { echo "needs PyPI"; exit 77; }
cat >"$folder/program.py" <<'PYTHON'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rows = np.arange(6.0).reshape(2, 3)
total = np.empty((3, 2))
world.Allreduce(rows.T, total)
here = rows.copy() if world.rank == 0 else np.zeros((2, 3), order="F")
world.Bcast(here, root=0)
try:
    world.Allreduce(rows[:, ::2], np.empty((2, 2)))
    slice_is = "taken"
except BufferError:
    slice_is = "refused"
if world.rank == 1:
    print("to add", (2 * rows.T).tolist(), "got", total.tolist())
    print("to broadcast", rows.tolist(), "got", here.tolist())
    print("slice", slice_is)
PYTHON
seen=$(PATH=$folder/bin:$PATH timeout 60 mpiexec -n 2 python "$folder/program.py")
echo "$seen"
[ "$seen" = "to add [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]] got [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]
to broadcast [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] got [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
slice refused" ] || { echo "mpi4py no longer behaves as described" >&2; exit 1; }
