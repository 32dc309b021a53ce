#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; 22.05.8 behaves alike
# behaviour: `srun --export=ALL,FOO=1` starts tasks with FOO=2 where FOO is 2 in the environment of srun: the given value
#            counts only for a variable that is not set there. `sbatch --export=ALL,FOO=1` sets 1, and so does
#            `srun --export=FOO=1`, without ALL.
# guess:     a value on the command line wins over the environment; srun(1): "will propagate all environment variables
#            [...] and additionally", and both programs have the same option
# seen:      2026-11-29: srun 2, srun without ALL 1, sbatch 1
# relies:    docs/reference/peer-options.md, `--export`: of `horarun -x FOO=1` the given value wins
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
cat >"$root/s/job" <<'END'
#!/bin/sh
echo "sbatch: $FOO"
END
said=$(slurm_run 1 2>/dev/null <<'END'
export FOO=2
srun --export=ALL,FOO=1 sh -c 'echo "srun: $FOO"'
srun --export=FOO=1 /bin/sh -c 'echo "srun, without ALL: $FOO"'
sbatch -Q --wait --output=/s/output --export=ALL,FOO=1 /s/job && cat /s/output
END
) || true
echo "$said"
[ "$said" = $'srun: 2\nsrun, without ALL: 1\nsbatch: 1' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
