#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NumPy 2.4.6; 1.26.4 behaves alike
# behaviour: the elements of a seed are cut into pieces of 32 bits and filled up with zeros, so lists and numbers that differ
#            are one seed: [5], [5, 0] and [5, 0, 0] are 5, and [5, 1] is 5 + 2**32.
# guess:     default_rng([seed, rank]) differs from default_rng(seed) on all ranks, and from that of any other number
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, which says so: ranks and epochs are often the last elements of a seed
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for release in 1.26.4 2.4.6; do
  python3 -m venv "$folder/$release"
  "$folder/$release/bin/pip" install -q "numpy==$release" || { echo "needs PyPI"; exit 77; }
  seen=$("$folder/$release/bin/python" - <<'PYTHON'
import numpy as np


def stream(seed):
    return np.random.default_rng(seed).integers(1 << 62, size=4).tolist()


for one, other in (5, [5]), (5, [5, 0]), ([5, 1], [5, 1, 0, 0]), ([5, 1], 5 + (1 << 32)), (5, [0, 5]), ([5, 1], [5, 2]):
    print(one, other, stream(one) == stream(other))
PYTHON
)
  echo "numpy $release"
  echo "$seen"
  [ "$seen" = "5 [5] True
5 [5, 0] True
[5, 1] [5, 1, 0, 0] True
[5, 1] 4294967301 True
5 [0, 5] False
[5, 1] [5, 2] False" ] || { echo "seeds no longer behave as described" >&2; exit 1; }
done
