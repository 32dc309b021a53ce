#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# package    openssh-client 1:9.2p1-2+deb12u10 (Debian 12)
# behaviour  `ssh-keygen -R node1` removes the whole line `node* KEY` from known_hosts, and with it what is known of every
#            other host that the pattern matches
# guess      it removes what is known of node1 alone, or leaves a line with a wildcard as it is
# seen       2026-11-28: "# Host node1 found: line 1", "kh updated."; the file is empty, and node2 is not found any more
# relies     the advice of a changed host key in launcher/transports/ssh_failures.cpp, which names the line and recommends
#            -R only for one that is for no other host
set -euo pipefail
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download openssh-client=1:9.2p1-2+deb12u10 2>/dev/null || { echo "the package cannot be had here"; exit 77; }
dpkg -x openssh-client_*.deb .
usr/bin/ssh-keygen -q -t ed25519 -N '' -f key
echo "node* $(cut -d' ' -f1,2 key.pub)" >kh
usr/bin/ssh-keygen -F node2 -f kh >/dev/null
usr/bin/ssh-keygen -R node1 -f kh
if [ -s kh ] || usr/bin/ssh-keygen -F node2 -f kh; then
  echo "different: node2 is still known:"
  cat kh
  exit 1
fi
