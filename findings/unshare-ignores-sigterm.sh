#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# package    util-linux 2.38.1 (Debian 12: util-linux 2.38.1-5+deb12u3)
# behaviour  `unshare --fork PROGRAM` ignores SIGTERM (and SIGINT) and passes neither on: its PROGRAM runs to its end, and
#            unshare exits with that program's code. --kill-child changes nothing, since that is about the death of unshare.
# guess      Like `env`, `nice` or `setsid --wait`, the wrapper ends by the signal, or hands it to the program.
# seen       2026-11-28: "unshare got SIGTERM at once; its program ended by itself, with 7"
# relies     launcher/agent/rank_set.cpp: a rank gets signals with its whole process group, and so does what unshare runs
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download util-linux=2.38.1-5+deb12u3 || exit 77
dpkg-deb --extract util-linux_*.deb .
unshare=$folder/usr/bin/unshare
"$unshare" --user true || exit 77

"$unshare" --user --fork sh -c 'touch started; sleep 2; exit 7' &
wrapper=$!
until [ -e started ]; do sleep 0.1; done
kill -TERM "$wrapper"
code=0
wait "$wrapper" || code=$?
echo "unshare got SIGTERM at once; its program ended by itself, with $code"
[ "$code" = 7 ]
