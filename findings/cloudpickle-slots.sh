#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   cloudpickle 3.1.3; 2.2.1 and later behave alike, 2.2.0 keeps the slots
# behaviour: a class of the main script with __slots__ arrives in another process without its slots. Its objects there can be
#            given any attribute, and one that comes back cannot be read: AttributeError, no __dict__. So it is with
#            dataclass(slots=True).
# guess:     a class arrives as it is, and objects of it come back, as those of other classes
# seen:      2026-11-30, the lines that the script compares
# relies:    _by_value() in collectives/python/hora/serialization.py; test_objects_of_the_main_script_travel
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PYTHON'
import pickle
import subprocess
import sys

import cloudpickle


class Plain:
    def __init__(self, value):
        self.value = value


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


there = """
import pickle, sys
import cloudpickle
made = pickle.load(sys.stdin.buffer)(3)
print(hasattr(made, "__dict__"), file=sys.stderr)
sys.stdout.buffer.write(cloudpickle.dumps(made))
"""
for kind in Plain, Slots:
    done = subprocess.run([sys.executable, "-c", there], input=cloudpickle.dumps(kind), capture_output=True, check=True)
    try:
        back = pickle.loads(done.stdout).value
    except AttributeError as error:
        back = error
    print(f"{kind.__name__}: __dict__ there {done.stderr.decode().strip()}, back: {back}")
PYTHON
for version in 2.2.0 3.1.3; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q cloudpickle==$version || { echo "needs PyPI"; exit 77; }
done
seen=$(for version in 2.2.0 3.1.3; do echo "$version"; "$folder/$version/bin/python" "$folder/program.py"; done)
echo "$seen"
[ "$seen" = "2.2.0
Plain: __dict__ there True, back: 3
Slots: __dict__ there False, back: 3
3.1.3
Plain: __dict__ there True, back: 3
Slots: __dict__ there True, back: 'Slots' object has no attribute '__dict__'" ] ||
  { echo "cloudpickle no longer behaves as described" >&2; exit 1; }
