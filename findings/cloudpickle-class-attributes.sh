#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   cloudpickle 3.1.3 and 2.2.0
# behaviour: an object of a class of the main script that comes back from another process brings the attributes of its class
#            along: loading it sets them on the class that is here, and those that the other process has added, too.
# guess:     only the object is new; its class, which exists here, stays as it is, as with pickle and a class of a module
# seen:      2026-11-30, both: "before: 1 none", "after: 5 there", "the same class: True"
# relies:    docs/reference/frameworks.md, "Behaviour to know"; hora.run and broadcast_object use cloudpickle
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/program.py" <<'PYTHON'
import pickle
import subprocess
import sys

import cloudpickle


class Settings:
    limit = 1


def work():
    Settings.limit = 5
    Settings.place = "there"
    return Settings()


def show(when):
    print(f"{when}: {Settings.limit} {getattr(Settings, 'place', 'none')}")


there = """
import pickle, sys
import cloudpickle
sys.stdout.buffer.write(cloudpickle.dumps(pickle.load(sys.stdin.buffer)()))
"""
show("before")
command = [sys.executable, "-c", there]
result = subprocess.run(command, input=cloudpickle.dumps(work), stdout=subprocess.PIPE, check=True).stdout
result = pickle.loads(result)
show("after")
print("the same class:", type(result) is Settings)
PYTHON
for version in 3.1.3 2.2.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q cloudpickle==$version || { echo "needs PyPI"; exit 77; }
  seen=$("$folder/$version/bin/python" "$folder/program.py")
  echo "$version
$seen"
  [ "$seen" = "before: 1 none
after: 5 there
the same class: True" ] || { echo "cloudpickle no longer behaves as described" >&2; exit 1; }
done
