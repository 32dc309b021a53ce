#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   JAX 0.10.2 (CPU); 0.4.30 behaves alike
# behaviour: multihost_utils.broadcast_one_to_all adds what all processes have, of which all but one have zeros: -0.0 arrives
#            as 0.0, and so do numbers below 1.2e-38. Unless jax_enable_x64 is set, NumPy's int64 arrive without their upper
#            32 bits, and nothing is said; so assert_equal of the same int64 (a hash, a time in nanoseconds) on all
#            processes fails.
# guess:     a broadcast keeps the bits, or refuses a type that it does not have
# seen:      2026-11-29, the lines that the script compares
# relies:    broadcast() in collectives/python/hora/jax.py sends bytes; docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q jax==0.10.2 || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
cat >"$folder/program.py" <<'PYTHON'
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

rank = int(sys.argv[1])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank)


def passes(value):
    try:
        multihost_utils.assert_equal(value)
        return "passes"
    except AssertionError:
        return "fails"


lines = [
    f"assert_equal of 7: {passes(np.int64(7))}",
    f"assert_equal of 7 + 2**40: {passes(np.int64(7 + 2**40))}",
    f"7 + 2**40 arrives as {multihost_utils.broadcast_one_to_all(np.int64(7 + 2**40))}",
    f"-0.0 and 1e-39 arrive as {multihost_utils.broadcast_one_to_all(np.array([-0.0, 1e-39], np.float32)).tolist()}",
]
if rank == 1:
    print("\n".join(lines))
PYTHON
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export JAX_PLATFORMS=cpu
timeout 120 "$folder/venv/bin/python" "$folder/program.py" 0 "$port" >"$folder/log" 2>&1 &
seen=$(timeout 120 "$folder/venv/bin/python" "$folder/program.py" 1 "$port" 2>>"$folder/log" | grep -v '^\[Gloo\]') ||
  tail "$folder/log" >&2
wait
echo "$seen"
[ "$seen" = "assert_equal of 7: passes
assert_equal of 7 + 2**40: fails
7 + 2**40 arrives as 7
-0.0 and 1e-39 arrive as [0.0, 0.0]" ] || { echo "JAX no longer behaves as described" >&2; exit 1; }
