#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch)
# behaviour: all ranks of torchrun have its standard input, one and the same pipe: each line that is piped in reaches the rank
#            that happens to read it, and one rank may get all of them
# guess:     rank 0 gets all, as under mpirun; or every rank, as under srun
# seen:      2026-11-29, the lines that the script compares: which are read by rank 0, and then by rank 1
# relies:    docs/howto/from-other-launchers.md, "What is different"; horarun's --stdin names the ranks that get it
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
# Rank 1 reads when rank 0 has read its lines.
cat >rank.sh <<'END'
if [ "$RANK" = 0 ]; then
  for _ in 1 2 3; do read -r line; echo "rank 0: $line"; done
  : >done
else
  for _ in $(seq 600); do [ -e done ] && break || sleep 0.1; done
  while read -r line; do echo "rank 1: $line"; done
fi
END
seen=$(seq 5 | timeout 300 venv/bin/torchrun --standalone --no-python --nproc-per-node 2 bash rank.sh 2>log)
echo "$seen"
[ "$seen" = "rank 0: 1
rank 0: 2
rank 0: 3
rank 1: 4
rank 1: 5" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
