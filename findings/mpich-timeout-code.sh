#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   MPICH 5.0.2 (wheel mpich of PyPI)
# behaviour: when MPIEXEC_TIMEOUT ends a job, mpiexec says "APPLICATION TIMED OUT" and ends with 255 or, by chance, with 0
# guess:     a job that was cut off has an exit code that is not 0, always the same
# seen:      2026-11-28: exit code 0 in 4 of 56 runs
# relies:    launcher/plan/mpirun_plan.cpp: --timeout is kept by timeout(1), whose code is 124, for all of Hydra
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mpich==5.0.2
codes=
for _ in $(seq 80); do
  code=0
  MPIEXEC_TIMEOUT=1 timeout 60 "$folder/venv/bin/mpiexec" -n 2 sleep 60 >"$folder/said" 2>&1 || code=$?
  grep -q "APPLICATION TIMED OUT" "$folder/said"
  codes="$codes $code"
  [ "$code" != 0 ] || break
done
echo "exit codes:$codes"
[ "$code" = 0 ] || { echo "80 jobs that were cut off all failed" >&2; exit 1; }
