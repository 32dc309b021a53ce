#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   hydra-core 1.3.8 with OmegaConf 2.3.1
# behaviour: an override of the command line and the same text in a configuration file are different values: on and 010 are
#            strings in one, True and 8 in the other. In both, 2024_01_02 is the integer 20240102; 12e4567, a possible
#            id of a job or a commit, is infinity on the command line.
# guess:     a value is what it is in the file, and a date or an id with letters is a string
# seen:      2026-11-30, the lines that the script compares
# relies:    docs/reference/frameworks.md, which says how to quote: horarun passes the words of a program on as they are
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q hydra-core==1.3.8 omegaconf==2.3.1 || { echo "needs PyPI"; exit 77; }
seen=$("$folder/bin/python" -W ignore - <<'PYTHON'
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

parser = OverridesParser.create()
for text in "on", "010", "1:30", "2024_01_02", "12e4567", "'2024_01_02'":
    override = parser.parse_override(f"key={text}").value()
    print(text, repr(getattr(override, "text", override)), repr(OmegaConf.create(f"key: {text}").key))
PYTHON
)
echo "$seen"
[ "$seen" = "on 'on' True
010 '010' 8
1:30 '1:30' 90
2024_01_02 20240102 20240102
12e4567 inf inf
'2024_01_02' '2024_01_02' '2024_01_02'" ] || { echo "values are no longer read as described" >&2; exit 1; }
