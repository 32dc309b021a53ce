#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmctld, slurmd and slurm-client 24.11.5-4+deb13u1 of Debian 13; 26.05.5 behaves alike
# behaviour: SIGTERM, SIGHUP or SIGQUIT to srun, as from `timeout`, kills the tasks by SIGKILL at once. They do not get the
#            signal, although srun says "Waiting up to 32 seconds for job step to finish". SIGUSR1 is passed on, and
#            scancel of the job sends SIGTERM first.
# guess:     the tasks get SIGTERM, and SIGKILL after KillWait; srun(1): "Signals sent to the srun command are automatically
#            forwarded to the tasks", but for SIGINT
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/howto/from-other-launchers.md, "srun"; what horarun does with signals is in docs/reference/exit-codes.md
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
cat >"$root/s/task" <<'END'
for each in TERM HUP QUIT USR1; do trap "echo task got $each; exit 5" $each; done
touch /s/ready
for _ in $(seq 300); do sleep 0.1; done
END
said=$(slurm_run 1 2>/dev/null <<'END'
signal() {
  rm -f /s/ready
  srun -n1 sh /s/task &
  pid=$!
  until [ -e /s/ready ]; do sleep 0.1; done
  [ "$1" != scancel ] || scancel --user=root
  [ "$1" = scancel ] || kill -"$1" $pid
  wait $pid
  echo "$1: $?"
}
for each in TERM HUP QUIT USR1 scancel; do signal $each; done
END
) || true
echo "$said"
[ "$said" = 'TERM: 137
HUP: 137
QUIT: 137
task got USR1
USR1: 5
task got TERM
scancel: 5' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
