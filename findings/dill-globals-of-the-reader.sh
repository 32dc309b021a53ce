#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   dill 0.4.1, cloudpickle 3.1.3 to compare
# behaviour: a function of the main script that dill has pickled uses, in another process, the global variables of that
#            process's main script, and a name that is missing there is a NameError. With recurse=True, and with cloudpickle,
#            it brings the values along.
# guess:     it brings along what it needs, as its code, which is also pickled by value
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hora.run pickles by cloudpickle
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q dill==0.4.1 cloudpickle==3.1.3 || { echo "needs PyPI"; exit 77; }
cat >"$folder/writer.py" <<'PYTHON'
import subprocess
import sys

import cloudpickle
import dill

rate = 1


def function():
    return rate


def loaded(pickled, script):
    done = subprocess.run([sys.executable, "-c", script], input=pickled, capture_output=True)
    return done.stdout.decode().strip() or done.stderr.decode().split("\n")[-2].split(":")[0]


same_name = "import sys, dill\nrate = 2\nprint(dill.load(sys.stdin.buffer)())"
no_name = "import sys, dill\nprint(dill.load(sys.stdin.buffer)())"
for name, pickled in [
    ("dill", dill.dumps(function)),
    ("dill, recurse", dill.dumps(function, recurse=True)),
    ("cloudpickle", cloudpickle.dumps(function)),
]:
    print(f"{name}: {loaded(pickled, same_name)} {loaded(pickled, no_name)}")
PYTHON
seen=$("$folder/bin/python" "$folder/writer.py")
echo "$seen"
[ "$seen" = "dill: 2 NameError
dill, recurse: 1 1
cloudpickle: 1 1" ] || { echo "they no longer behave as described" >&2; exit 1; }
