#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; seen with 22.05.8 and 26.05.5, too
# behaviour: in a job of two nodes and `--gpus=4`, a step on one node that asks for no GPU is refused. As a step of an
#            external launcher it starts, and has that node's two GPUs.
# guess:     the step has the GPUs of its node: srun(1) says that by default a step gets all that its job has
# seen:      2026-11-28, srun --overlap -N1: error: Unable to create step for job 1: Invalid generic resource (gres)
#            specification; with SLURM_EXTERNAL_LAUNCHER=1: 0,1
# relies:    launcher/engines/slurm.cpp
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
for k in 0 1; do mknod -m 666 "$root/s/gpu$k" c 1 3; done
printf 'Name=gpu File=/s/gpu%s\n' 0 1 >"$root/s/gres.conf"
said=$(slurm_run 2 Gres=gpu:2 2>&1 <<'END'
salloc -Q -N2 --gpus=4 sh -c 'unset SLURM_GPUS
  srun --overlap -N1 -n1 sh -c "echo plain: \$CUDA_VISIBLE_DEVICES" 2>&1
  SLURM_EXTERNAL_LAUNCHER=1 srun -N1 -n1 sh -c "echo external: \$CUDA_VISIBLE_DEVICES" 2>&1'
END
) || true
echo "$said"
grep -q 'Invalid generic resource (gres) specification' <<<"$said" && grep -q '^external: 0,1$' <<<"$said"
