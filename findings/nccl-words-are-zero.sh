#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   NCCL 2.30.7 (nvidia-nccl-cu13), which PyTorch 2.15.0 brings along; 2.32.3 takes the default for a word, and says so at level INFO alone
# behaviour: a parameter that is on or off is a number: `true`, `yes` and `on` are 0, so NCCL_P2P_DISABLE=true disables nothing
#            and NCCL_GDRCOPY_ENABLE=true, which the script uses, enables nothing. Nothing is said but at level INFO, "set by
#            environment to 0". An unknown level in NCCL_DEBUG, such as DEBUG or 1, is silence, too.
# guess:     true is 1, or a warning says that the value is not a number
# seen:      2026-11-30, the lines that the script compares: with 1, NCCL looks for the library of GDRCopy and warns
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps --target "$folder" nvidia-nccl-cu13==2.30.7 || { echo "needs PyPI"; exit 77; }
library=$(echo "$folder"/nvidia/*/lib/libnccl.so.2)
run() {
  NCCL_SOCKET_IFNAME=lo HOME=$folder timeout 120 env "$@" python3 -c '
import ctypes, sys
ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128))' "$library" 2>&1 || true
}
seen=$(for value in 1 true yes on; do
  echo "$value: $(run NCCL_DEBUG=WARN NCCL_GDRCOPY_ENABLE=$value | grep -c WARN)"
done
for level in INFO DEBUG 1; do
  echo "NCCL_DEBUG=$level: $(run NCCL_DEBUG=$level | grep -q 'NCCL INFO' && echo lines || echo silence)"
done)
echo "$seen"
[ "$seen" = "1: 1
true: 0
yes: 0
on: 0
NCCL_DEBUG=INFO: lines
NCCL_DEBUG=DEBUG: silence
NCCL_DEBUG=1: silence" ] || { echo "NCCL no longer behaves as described" >&2; exit 1; }
