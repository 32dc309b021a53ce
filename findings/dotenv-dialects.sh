#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   python-dotenv 1.2.4, uv 0.13.9
# behaviour: one file of NAME=VALUE lines has two readings: python-dotenv expands ${NAME} and keeps $NAME, uv expands both;
#            from the line of an unquoted apostrophe on, uv sets nothing, and starts the program.
# guess:     the readers of .env files agree on plain lines; one that cannot read a line starts nothing
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/howto/environment-and-secrets.md: --env-file takes each value as it stands
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q python-dotenv==1.2.4 uv==0.13.9 || { echo "needs PyPI"; exit 77; }
export UV_CACHE_DIR=$folder/cache BASE=/data
cat >"$folder/job.env" <<'FILE'
A=$BASE
B=${BASE}/x
C='$BASE'
D=1 # comment
E=it's
F=6
FILE
cat >"$folder/show.py" <<'PYTHON'
import os
import sys

import dotenv

values = dotenv.dotenv_values(sys.argv[1]) if len(sys.argv) > 1 else os.environ
print({name: values.get(name) for name in "ABCDEF"})
PYTHON
seen=$("$folder/bin/python" "$folder/show.py" "$folder/job.env"
  "$folder/bin/uv" run --no-project --python "$folder/bin/python" --env-file "$folder/job.env" \
    "$folder/bin/python" "$folder/show.py" 2>"$folder/log")
echo "$seen"
grep -i warning "$folder/log" || true
[ "$seen" = "{'A': '\$BASE', 'B': '/data/x', 'C': '\$BASE', 'D': '1', 'E': \"it's\", 'F': '6'}
{'A': '/data', 'B': '/data/x', 'C': '\$BASE', 'D': '1', 'E': None, 'F': None}" ] ||
  { echo "such files are no longer read as described" >&2; exit 1; }
