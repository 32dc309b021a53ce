#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   oneCCL 2022.2.0 (oneccl, oneccl-cpu)
# behaviour: CCL_LOG_LEVEL=error makes it print a warning of its own on standard output: that the level has changed.
# guess:     with the level of errors nothing is printed while all is well, and never on standard output
# seen:      2026-11-30: "|CCL_WARN| value of CCL_LOG_LEVEL changed to be error (default:warn)", then the program's own line
# relies:    launcher/plan/worker_environment.cpp: sets the level all the same, since the default prints more;
#            tests/benchmark/collectives: looks for its own lines in the output
set -euo pipefail
[ "$(uname -m)" = x86_64 ] || { echo "oneCCL is for x86-64"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
# The second wheel's libccl.so.1 takes the place of the first's, which needs SYCL.
"$folder/bin/pip" install -q --no-deps oneccl==2022.2.0
"$folder/bin/pip" install -q --no-deps oneccl-cpu==2022.2.0
cat >"$folder/ask.py" <<'END'
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print("result", library.onecclGetUniqueId(ctypes.create_string_buffer(4096)), flush=True)
END
seen=$(env -u CCL_WORKER_OFFLOAD CCL_LOG_LEVEL=error timeout 120 python3 "$folder/ask.py" "$folder/lib/libccl.so.2" 2>/dev/null |
  sed 's/^[^|]*|CCL/|CCL/')
echo "$seen"
[ "$seen" = "|CCL_WARN| value of CCL_LOG_LEVEL changed to be error (default:warn)
result 0" ] || { echo "oneCCL no longer behaves as described" >&2; exit 1; }
