#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   libgomp 12.2.0 (libgomp1 of Debian 12)
# behaviour: with OMP_PROC_BIND=true or GOMP_CPU_AFFINITY, loading the library binds the process to one CPU, the first of its
#            list, before any parallel region; threads and processes that it starts later inherit that. So the ranks of a
#            host that load it, as PyTorch does, all sit on the same CPU, with their data loaders.
# guess:     threads of OpenMP are bound, each to its own CPU, when there are some; the process itself keeps its CPUs
# seen:      2026-11-30, the lines that the script compares, on two CPUs
# relies:    docs/reference/frameworks.md, "Behaviour to know"; --bind gives each rank CPUs of its own
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq libgomp1=12.2.0-14+deb12u1 && dpkg -x ./*.deb root)
cat >"$folder/load.py" <<'PYTHON'
import ctypes, os, subprocess, sys

before = len(os.sched_getaffinity(0))
ctypes.CDLL(sys.argv[1])
after = len(os.sched_getaffinity(0))
child = "import os; print(len(os.sched_getaffinity(0)))"
child = int(subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=True).stdout)
print(*("all" if count == before else count for count in (after, child)))
PYTHON
cpus=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep=",")')
case $cpus in *,*) ;; *) echo "needs two CPUs"; exit 77 ;; esac
library=$(echo "$folder"/root/usr/lib/*/libgomp.so.1)
run() { env -u OMP_PLACES -u OMP_PROC_BIND -u GOMP_CPU_AFFINITY "$@" python3 "$folder/load.py" "$library"; }
seen="plain: $(run)
OMP_PROC_BIND=true: $(run OMP_PROC_BIND=true)
OMP_PROC_BIND=spread: $(run OMP_PROC_BIND=spread)
GOMP_CPU_AFFINITY=LIST: $(run GOMP_CPU_AFFINITY="$cpus")"
echo "$seen"
[ "$seen" = "plain: all all
OMP_PROC_BIND=true: 1 1
OMP_PROC_BIND=spread: 1 1
GOMP_CPU_AFFINITY=LIST: 1 1" ] || { echo "libgomp no longer behaves as described" >&2; exit 1; }
