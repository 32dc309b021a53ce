#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; seen with 22.05.8 and 26.05.5, too
# behaviour: SLURM_OVERLAP=0 and SLURM_OVERLAP=no in the environment of srun turn --overlap on, as SLURM_OVERLAP=1 does.
#            SLURM_LABELIO=0 leaves --label off.
# guess:     they leave it off: srun(1) says that a flag is set by an empty value, "yes" or a number but zero, and by no other
# seen:      2026-11-28, alongside a step that has all processors: without the variable "Requested nodes are busy", with
#            each of the three values the step runs
# relies:    step() in launcher/engines/slurm.cpp, which leaves the variable out where steps must not overlap
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
said=$(slurm_run 1 2>/dev/null <<'END'
salloc -Q -N1 -n2 sh -c '
  srun --exact -n2 sleep 60 & first=$!
  until [ -n "$(squeue -h -s -o %i -j $SLURM_JOB_ID | grep "[.]0$")" ]; do sleep 0.2; done
  for value in none 0 no 1; do
    [ $value = none ] || export SLURM_OVERLAP=$value
    srun --exact -n2 --immediate=1 true 2>/dev/null && echo "$value: runs" || echo "$value: busy"
  done
  echo "label: $(SLURM_LABELIO=0 srun -n1 echo whole)"
  kill $first'
END
) || true
echo "$said"
[ "$said" = $'none: busy\n0: runs\nno: runs\n1: runs\nlabel: whole' ]
