#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   PyTorch 2.15.0 (torch), the stores of torch.distributed
# behaviour: compare_set() of a key that does not exist returns the value that was expected, and writes nothing, unless an empty
#            value was expected. A caller who takes an answer equal to what it expected for "the key has this value" holds a
#            lock that does not exist. TCPStore, FileStore and HashStore do the same.
# guess:     the answer is the value that the key has now: the desired one after success, else what is there, and of a missing
#            key an error or an empty one
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q torch==2.15.0 || { echo "needs PyPI"; exit 77; }
seen=$("$folder/bin/python" -W ignore - "$folder/store" <<'PYTHON'
import sys

import torch.distributed as dist

for store in dist.TCPStore("127.0.0.1", 0, is_master=True), dist.FileStore(sys.argv[1], 1), dist.HashStore():
    answer = store.compare_set("lock", "mine", "taken")
    print(type(store).__name__, "expected a value:", answer.decode(), store.check(["lock"]))
    answer = store.compare_set("lock", "", "mine")
    print(type(store).__name__, "expected none:", answer.decode(), store.check(["lock"]))
PYTHON
)
echo "$seen"
[ "$seen" = "$(for store in TCPStore FileStore HashStore; do
  printf '%s\n' "$store expected a value: mine False" "$store expected none: mine True"
done)" ] || { echo "PyTorch no longer behaves as described" >&2; exit 1; }
