#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmctld, slurmd and slurm-client 24.11.5-4+deb13u1 of Debian 13; 26.05.5 behaves alike
# behaviour: `srun --label` makes several lines of a line of more than 1024 bytes: a label and a line feed for each piece of
#            at most 1024, on the console and in the files of --output. A record of JSON is then none.
# guess:     one label in front of each line, however long; without --label, lines stay whole
# seen:      2026-11-29, the lines that the script compares
# relies:    launcher/output/line_tagger.h: lines of up to 1 MiB have one tag, and no line feed is added to a longer one
set -euo pipefail
# shellcheck source=findings/slurm-cluster
. "$(dirname "$0")/slurm-cluster"
slurm_install
said=$(slurm_run 1 2>/dev/null <<'END'
for size in 1000 3000; do
  srun -n1 sh -c "printf %0${size}d 0; echo" | echo "plain, $size: $(wc -l)"
  srun -n1 --label sh -c "printf %0${size}d 0; echo" | echo "labelled, $size: $(wc -l)"
done
srun -n1 --label --output=/s/output sh -c 'printf %03000d 0; echo'
echo "file, 3000: $(wc -l </s/output)"
END
) || true
echo "$said"
[ "$said" = 'plain, 1000: 1
labelled, 1000: 1
plain, 3000: 1
labelled, 3000: 3
file, 3000: 3' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
