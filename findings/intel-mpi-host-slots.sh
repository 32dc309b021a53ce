#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Intel MPI 2021.19.0 (wheel impi-rt of PyPI), MPICH 5.0.2 (wheel mpich) to compare
# behaviour: both launchers are Hydra. In "-hosts NAME:SLOTS", MPICH reads slots; Intel takes all of it for the name of
#            a host, and asks ssh for a host "NAME:SLOTS".
# guess:     one notation for hosts and slots, since one program comes from the other
# seen:      2026-11-28: mpich: one:2 -> ssh one; impi-rt: one:2 -> ssh one:2
# relies:    launcher/plan/mpi_launchers.cpp: Intel MPI gets names and -ppn, and slots that differ are refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# An ssh that notes which host it should reach, and says that it cannot.
mkdir "$folder/bin"
printf '#!/bin/sh\necho " $*" >>%s/asked\nexit 1\n' "$folder" >"$folder/bin/ssh"
chmod +x "$folder/bin/ssh"

seen=
for package in mpich==5.0.2 impi-rt==2021.19.0; do
  name=${package%%==*}
  python3 -m venv "$folder/$name"
  "$folder/$name/bin/pip" install -q --no-deps "$package"
  rm -f "$folder/asked"
  PATH=$folder/bin:$folder/$name/bin:$PATH timeout 60 mpiexec -launcher ssh -launcher-exec "$folder/bin/ssh" \
    -hosts one.invalid:2 -n 2 hostname >/dev/null 2>&1 || :
  seen="$seen$name: $(grep -oE ' one\.invalid[^ ]*' "$folder/asked" | sort -u)
"
done
printf '%s' "$seen"
[ "$seen" = "mpich:  one.invalid
impi-rt:  one.invalid:2
" ] || { echo "they no longer behave as described" >&2; exit 1; }
