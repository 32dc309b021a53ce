#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   bash 5.2.15, dash 0.5.12, Linux 6.x (Debian 12)
# behaviour: `ulimit -t 1` sets the soft and the hard limit; at the hard one the kernel sends SIGKILL and never SIGXCPU, so
#            a handler of SIGXCPU does not run. `ulimit -S -t 1` sends SIGXCPU
# guess:     SIGXCPU first, with some time to save the work, as setrlimit(2) and batch systems describe it
# seen:      2026-11-28: "-t 1: 137" and "-S -t 1: 7" with both shells
# relies:    launcher/agent/rank_set.cpp (explain_kill), which distinguishes this SIGKILL from the out-of-memory killer's
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download bash=5.2.15-2+b13 dash=0.5.12-2 2>/dev/null || apt-get -qq download bash dash 2>/dev/null ||
  { echo "needs apt-get"; exit 77; }
for package in *.deb; do dpkg -x "$package" root; done
cat >spin.py <<'PY'
import signal, sys
signal.signal(signal.SIGXCPU, lambda *_: sys.exit(7))
while True:
    pass
PY
for shell in root/bin/bash root/bin/dash; do
  for options in "-t 1" "-S -t 1"; do
    code=0
    timeout 60 "$shell" -c "ulimit $options; exec python3 -S spin.py" 2>/dev/null || code=$?
    echo "$(basename "$shell") $options: $code"
    case $options in -S*) [ "$code" = 7 ] ;; *) [ "$code" = 137 ] ;; esac
  done
done
