#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch)
# behaviour: ranks outlive a torchrun that is killed by SIGKILL, say by the out-of-memory killer; nothing signals them. If
#            SIGTERM or SIGINT ends torchrun, it signals them, and its exit code is 1, as for a rank that fails.
# guess:     the ranks end with their launcher, as under mpirun and srun; 143 and 130
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/howto/from-other-launchers.md, "What is different"; what horarun does is in docs/reference/exit-codes.md
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
# A rank that ends by itself after a minute.
cat >rank.sh <<'END'
trap 'echo TERM >>signals; exit 0' TERM
trap 'echo INT >>signals; exit 0' INT
echo $$ >>ranks
for _ in $(seq 600); do sleep 0.1; done
END
outcome() {
  local launcher code=0 rank alive=0
  rm -f ranks signals
  touch ranks signals
  # As from a terminal: a shell's & makes a program ignore SIGINT.
  setsid env --default-signal=INT venv/bin/torchrun --standalone --no-python --nproc-per-node 2 sh rank.sh >log 2>&1 &
  launcher=$!
  for _ in $(seq 600); do [ "$(wc -l <ranks)" = 2 ] && break || sleep 0.1; done
  kill -"$1" $launcher
  wait $launcher 2>/dev/null || code=$?
  sleep 3
  while read -r rank; do ! kill -0 "$rank" 2>/dev/null || { alive=$((alive + 1)); kill -KILL "$rank"; }; done <ranks
  echo "SIG$1: exit code $code; got by ranks: $(xargs <signals); $alive left"
}
seen=$(for signal in KILL TERM INT; do outcome $signal; done)
echo "$seen"
[ "$seen" = "SIGKILL: exit code 137; got by ranks: ; 2 left
SIGTERM: exit code 1; got by ranks: TERM TERM; 0 left
SIGINT: exit code 1; got by ranks: INT INT; 0 left" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
