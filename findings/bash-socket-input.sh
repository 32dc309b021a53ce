#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   bash 5.2.15 (Debian 12)
# behaviour: `bash -c COMMAND` reads ~/.bashrc first when its standard input is one end of a socketpair, as if the
#            remote shell daemon had started it; not with a pipe. A .bashrc that prints, or takes its time, comes before
#            the command. SHLVL must be below 2, so that it shows when a service starts the program and not in a terminal.
# guess:     a shell that is not interactive reads no start-up file; a socketpair is not a network connection
# seen:      2026-11-28: pipe: command | socketpair: bashrc command | socketpair, --norc: command
# relies:    launcher/transports/ssh_target.cpp, set_route(): a proxy command, which has one socket for input and output,
#            runs in `bash --norc`; ssh itself gives it two pipes
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get for bash's package"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq bash=5.2.15-2+b13 && dpkg -x ./*.deb root)
echo 'echo bashrc' >"$folder/.bashrc"

seen=$(env -i HOME="$folder" PATH="$PATH" python3 - "$folder/root/bin/bash" <<'END'
import os, socket, subprocess, sys

def words(standard_input, *options):
    done = subprocess.run([sys.argv[1], *options, "-c", "echo command"], stdin=standard_input, capture_output=True, text=True)
    return " ".join(done.stdout.split())

ours, theirs = socket.socketpair()
pipe, _ = os.pipe()
print(f"pipe: {words(pipe)} | socketpair: {words(theirs)} | socketpair, --norc: {words(theirs, '--norc')}")
END
)
echo "$seen"
[ "$seen" = "pipe: command | socketpair: bashrc command | socketpair, --norc: command" ] ||
  { echo "not as described" >&2; exit 1; }
