#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   cloudpickle 2.2.0 (that of Debian 12) and 3.1.3, on Python 3.9 and later
# behaviour: a typing.NamedTuple of the main script is pickled by both; what 2.2.0 made cannot be loaded in another
#            process: KeyError '__module__'. Dataclasses and enumerations of the main script travel with both.
# guess:     what can be pickled can be loaded; a release of 2022 knows the Python of 2020
# seen:      2026-11-28, "2.2.0: KeyError: '__module__'", "3.1.3: Point(x=3)"
# relies:    scripts/setup and collectives/python/hora/serialization.py: the bundled cloudpickle is a newer one;
#            test_python_releases.py::test_objects_of_the_main_script_travel
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "needs Python 3.9 or later"; exit 77; }

python3 -m venv "$folder/venv"
cat >"$folder/program.py" <<'PYTHON'
import typing

import cloudpickle


class Point(typing.NamedTuple):
    x: int


open("pickle", "wb").write(cloudpickle.dumps(Point(3)))
PYTHON
seen=$(cd "$folder" && for version in 2.2.0 3.1.3; do
  venv/bin/pip install -q "cloudpickle==$version"
  venv/bin/python program.py
  echo "$version: $(venv/bin/python -c 'import pickle; print(pickle.load(open("pickle", "rb")))' 2>&1 | tail -n 1)"
done)
echo "$seen"
[ "$seen" = "2.2.0: KeyError: '__module__'
3.1.3: Point(x=3)" ] || { echo "cloudpickle no longer behaves as described" >&2; exit 1; }
