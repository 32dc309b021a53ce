#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Intel MPI 2021.19.0 (wheel impi-rt of PyPI)
# behaviour: of a file with the lines `one:1` and `two:3`, -machinefile takes the numbers of ranks; -f, its long name
#            -hostfile and I_MPI_HYDRA_HOST_FILE drop them without a word, and give each host as many ranks as the machine
#            of mpiexec has cores, or as -ppn says.
# guess:     all of them read the same format, as `-f` and `-machinefile` do in MPICH, of which this launcher is a copy
# seen:      2026-11-29: -machinefile: (one:0) (two:1,2,3), the others: (one:0,2) (two:1,3)
# relies:    launcher/plan/mpi_launchers.cpp: Intel MPI gets names and -ppn; engines.md: the engine MPIJob takes the numbers
#            in the file of I_MPI_HYDRA_HOST_FILE for slots
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps impi-rt==2021.19.0 || { echo "needs PyPI"; exit 77; }
printf '#!/bin/sh\nexit 1\n' >"$folder/ssh"  # it reaches no host; where ranks would run has been printed by then
chmod +x "$folder/ssh"
printf 'one:1\ntwo:3\n' >"$folder/hosts"

ranks() {
  PATH=$folder:$folder/venv/bin:$PATH timeout 60 mpiexec -launcher ssh -print-rank-map "$@" -n 4 hostname 2>/dev/null |
    grep '^(' | paste -sd ' ' || true
}
export I_MPI_PERHOST=1
seen="-machinefile: $(ranks -machinefile "$folder/hosts")
-f: $(ranks -f "$folder/hosts")
-hostfile: $(ranks -hostfile "$folder/hosts")
variable: $(I_MPI_HYDRA_HOST_FILE=$folder/hosts ranks)"
echo "$seen"
[ "$seen" = "-machinefile: (one:0) (two:1,2,3)
-f: (one:0,2) (two:1,3)
-hostfile: (one:0,2) (two:1,3)
variable: (one:0,2) (two:1,3)" ] || { echo "Intel MPI no longer behaves as described" >&2; exit 1; }
