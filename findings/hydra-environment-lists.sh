#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   mpich 5.0.2, impi-rt 2021.19.0 (Intel MPI) (PyPI)
# behaviour: -envnone, -envlist and their forms for all programs keep no variable away from ranks on the machine of mpiexec:
#            these inherit its environment by way of their proxy.
# guess:     a rank has the variables of the list alone: the help calls -envnone "do not pass any environment variables"
# seen:      2026-11-29, the lines that the script compares
# relies:    launcher/options/peer_options.inc, which says that horarun has no -envnone: ranks get the environment
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in mpich==5.0.2 impi-rt==2021.19.0; do
  python3 -m venv "${package%%=*}"
  "${package%%=*}/bin/pip" -q install --no-deps $package || { echo "needs PyPI"; exit 77; }
done
export I_MPI_FABRICS=shm LISTED=1 SECRET=2
seen=$(for launcher in mpich impi-rt; do
  for option in -envnone -genvnone '-envlist LISTED' '-genvlist LISTED'; do
    # shellcheck disable=SC2086
    echo "$launcher $option: $(PATH=$folder/$launcher/bin:$PATH timeout 60 mpiexec $option -n 1 sh -c 'echo "$LISTED $SECRET"' 2>log)"
  done
done)
echo "$seen"
[ "$(cut -d : -f 2 <<<"$seen" | sort -u)" = ' 1 2' ] || { echo "they no longer behave as described" >&2; exit 1; }
