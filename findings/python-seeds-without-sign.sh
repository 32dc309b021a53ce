#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Python 3.11 and the others that are installed as python3.N
# behaviour: random.seed() of a negative integer is that of its absolute value.
# guess:     ranks that take seed - rank for their seed, or its bitwise complement, draw different numbers
# seen:      2026-11-30, the line that the script compares
# relies:    docs/reference/frameworks.md, which says so next to the seeds of NumPy
set -euo pipefail
found=0
for minor in 8 9 10 11 12 13 14; do
  "python3.$minor" -c "" 2>/dev/null || continue
  found=1
  seen=$("python3.$minor" - <<'PYTHON'
import random

print([random.Random(seed).random() == random.Random(-seed).random() for seed in (1, 7, 2**40)],
      [random.Random(1 - rank).getrandbits(32) for rank in range(3)])
PYTHON
)
  echo "Python 3.$minor: $seen"
  [ "$seen" = "[True, True, True] [577090037, 3626764237, 577090037]" ] ||
    { echo "seeds no longer behave as described" >&2; exit 1; }
done
[ $found = 1 ] || { echo "needs Python"; exit 77; }
