#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   pyarrow 26.0.1
# behaviour: a pickle of a slice of an array or of a table has the buffers of the whole: one of a million numbers takes
#            8 MB, for each rank that a table is sliced for. The IPC format, and a slice that was copied by take(), have what
#            the slice has.
# guess:     as of NumPy, whose pickle of a view has the elements of the view
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hora.broadcast_object and arguments of hora.run are pickles
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q pyarrow==26.0.1 numpy || { echo "needs Python 3.11 or later, and PyPI"; exit 77; }
seen=$("$folder/bin/python" - <<'PYTHON'
import pickle

import numpy as np
import pyarrow as pa

numbers = np.arange(10**6)
array, table = pa.array(numbers), pa.table({"column": numbers})
batches = pa.BufferOutputStream()
with pa.ipc.new_stream(batches, table.schema) as stream:
    stream.write_table(table.slice(5, 1))
for name, size in (
    ("NumPy's view", len(pickle.dumps(numbers[5:6]))),
    ("array", len(pickle.dumps(array.slice(5, 1)))),
    ("table", len(pickle.dumps(table.slice(5, 1)))),
    ("table, IPC", batches.getvalue().size),
    ("table, copied", len(pickle.dumps(table.take([5])))),
):
    print(f"{name}: {'more than 8,000,000' if size > 8e6 else 'less than 2,000' if size < 2000 else size} bytes")
PYTHON
)
echo "$seen"
[ "$seen" = "NumPy's view: less than 2,000 bytes
array: more than 8,000,000 bytes
table: more than 8,000,000 bytes
table, IPC: less than 2,000 bytes
table, copied: less than 2,000 bytes" ] || { echo "pyarrow no longer behaves as described" >&2; exit 1; }
