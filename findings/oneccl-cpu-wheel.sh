#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   oneCCL 2022.2.0 (oneccl-cpu, oneccl)
# behaviour: the libccl.so.1 of the wheel oneccl-cpu needs a libccl.so.2, which is neither in it nor in a package that it
#            depends on. The wheel oneccl has one, and a libccl.so.1 in the same place that needs SYCL: which of the two
#            was installed last decides whether the libraries load.
# guess:     a wheel brings, or depends on, what its library needs
# seen:      2026-11-30: "alone: libccl.so.2", "oneccl last: libsycl.so.9", "oneccl-cpu last: loads" (what is not found)
# relies:    scripts/setup: the order of the two; docs/reference/runtime.md
set -euo pipefail
[ "$(uname -m)" = x86_64 ] || { echo "oneCCL is for x86-64"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
install() { "$folder/bin/pip" install -q --no-deps --force-reinstall "$1==2022.2.0"; }
load() {  # what the loader does not find
  python3 - "$folder/lib/libccl.so.1" <<'END'
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
    print("loads")
except OSError as error:
    print(str(error).split(":")[0])
END
}
install oneccl-cpu
needs=$(sed -n 's/^Requires-Dist: \([a-z-]*\).*/\1/p' "$folder"/lib/python3*/site-packages/oneccl_cpu-*/METADATA)
seen="depends on: $needs
alone: $(load)"
install oneccl
seen="$seen
oneccl last: $(load)"
install oneccl-cpu
seen="$seen
oneccl-cpu last: $(load)"
echo "$seen"
[ "$seen" = "depends on: libfabric
alone: libccl.so.2
oneccl last: libsycl.so.9
oneccl-cpu last: loads" ] || { echo "oneCCL's wheels no longer behave as described" >&2; exit 1; }
