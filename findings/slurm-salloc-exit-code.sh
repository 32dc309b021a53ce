#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmctld, slurmd and slurm-client 24.11.5-4+deb13u1 of Debian 13; 26.05.5 behaves alike
# behaviour: `salloc COMMAND` ends with 0 if COMMAND was killed by SIGKILL, SIGINT, SIGHUP or SIGQUIT, and with 1 if by any
#            other signal. It prints nothing about it. An exit code of COMMAND is passed on.
# guess:     128 + the signal's number, as shells, srun and timeout have it; never 0
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/howto/slurm.md, which has `salloc horarun` and says what becomes of a horarun that is killed
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
said=$(slurm_run 1 2>&1 <<'END'
salloc -Q sh -c 'exit 7'
echo "exit 7: $?"
for signal in KILL INT HUP QUIT TERM SEGV; do
  salloc -Q sh -c "kill -$signal \$\$"
  echo "$signal: $?"
done
END
) || true
echo "$said"
[ "$said" = 'exit 7: 7
KILL: 0
INT: 0
HUP: 0
QUIT: 0
TERM: 1
SEGV: 1' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
