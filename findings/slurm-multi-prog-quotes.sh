#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; 22.05.8 behaves alike
# behaviour: in a file of `srun --multi-prog`, double quotes quote nothing: `sh -c "echo one two"` has the arguments
#            `-c`, `"echo`, `one` and `two"`. Single quotes do, and keep srun from replacing the %t and %o in them.
# guess:     both quotes group words, and %t is replaced everywhere, as the examples in srun(1) have it
# seen:      2026-11-29, the lines that the script compares
# relies:    launcher/options/program_sections.cpp (read_program_line) reads both quotes as a shell does, and replaces %t in
#            them; cli.md, "Several programs"
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
cat >"$root/s/programs" <<'END'
0 printf '[%s]' "one two" %t
1 printf '[%s]' 'one two' '%t'
END
said=$(slurm_run 1 2>/dev/null <<<'srun -n2 --label --multi-prog /s/programs | sort') || true
echo "$said"
[ "$said" = $'0: ["one][two"][0]\n1: [one two][%t]' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
