#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Python 3.13.0, 3.12.1 and 3.9.18
# behaviour: what Python 3.13 pickles with a pathlib.Path in it (an argparse.Namespace, a configuration, a checkpoint of
#            torch.save) cannot be read by an older Python, in any protocol: "No module named 'pathlib._local'". Older
#            pickles are read by 3.13.
# guess:     a path is its class's name, `pathlib.PosixPath`, and its parts, as it has been since Python 3.4
# seen:      2026-11-29, "3.12: ModuleNotFoundError: No module named 'pathlib._local'; 'pathlib' is not a package", 3.9 alike
# relies:    collectives/python/hora/serialization.py (_path), test_python_releases.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
release() {
  local python
  for python in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
    if "$python" -c '' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "needs Python 3.9, 3.12 and 3.13, in PATH or of pyenv" >&2
  return 1
}
newest=$(release 3.13) && before=$(release 3.12) && oldest=$(release 3.9) || exit 77
cd "$folder"
write='import pathlib, pickle, sys; pickle.dump(pathlib.Path("/a/b"), open(sys.argv[1], "wb"), protocol=2)'
read='
import pickle, sys
try:
    print(pickle.load(open(sys.argv[1], "rb")))
except ImportError as error:
    print(f"{type(error).__name__}: {error}".partition(";")[0])'
"$newest" -c "$write" new
"$oldest" -c "$write" old
seen="3.13 to 3.12: $("$before" -c "$read" new)
3.13 to 3.9: $("$oldest" -c "$read" new)
3.9 to 3.13: $("$newest" -c "$read" old)"
echo "$seen"
[ "$seen" = "3.13 to 3.12: ModuleNotFoundError: No module named 'pathlib._local'
3.13 to 3.9: ModuleNotFoundError: No module named 'pathlib._local'
3.9 to 3.13: /a/b" ] || { echo "Python no longer behaves as described" >&2; exit 1; }
