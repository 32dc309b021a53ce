#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmctld, slurmd and slurm-client 24.11.5-4+deb13u1 of Debian 13; 26.05.5 behaves alike
# behaviour: under `srun --kill-on-bad-exit`, the exit code of a task that fails is lost: srun ends the other tasks by SIGTERM
#            and exits with their 143, whether the first exited with 3 or 200 or was killed by SIGKILL. Of a task that a
#            signal ended and one that exited with 200, the signal counts, without the option, too.
# guess:     the code of the task that failed, since the others were ended because of it; at least the highest code, of
#            which srun(1) speaks
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/howto/from-other-launchers.md, "What is different"; tasks that end because of another do not count in
#            docs/reference/exit-codes.md
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
said=$(slurm_run 1 2>/dev/null <<'END'
for first in 'exit 3' 'exit 200' 'kill -KILL $$'; do
  srun -n2 --kill-on-bad-exit sh -c "[ \$SLURM_PROCID = 1 ] || $first; sleep 20"
  echo "$first: $?"
done
srun -n2 sh -c '[ $SLURM_PROCID = 1 ] || exit 200; kill -TERM $$'
echo "exit 200 and SIGTERM, without the option: $?"
END
) || true
echo "$said"
[ "$said" = 'exit 3: 143
exit 200: 143
kill -KILL $$: 143
exit 200 and SIGTERM, without the option: 143' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
