#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client of Debian 12); 10.0p2 and 10.6p1 behave alike
# behaviour: ssh brings an IPv6 address into its shortest form before it looks the host up in known_hosts; ssh-keygen
#            looks up what was typed. A line with another spelling is found by ssh-keygen and not by ssh, although both
#            are given the same address.
# guess:     ssh finds the line that `ssh-keygen -F ADDRESS` prints
# seen:      2026-11-28: ssh looks up fd00:1::2; ssh-keygen finds fd00:1:0::2 and does not find fd00:1::2
# relies:    tests/support/hosts, known_hosts(): addresses in their shortest form
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get for OpenSSH's package"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq openssh-client=1:9.2p1-2+deb12u10 && dpkg -x ./*.deb root)
bin=$folder/root/usr/bin

"$bin/ssh-keygen" -q -t ed25519 -N '' -f "$folder/key"
echo "fd00:1:0::2 $(cut -d ' ' -f 1,2 "$folder/key.pub")" >"$folder/known_hosts"
finds() { "$bin/ssh-keygen" -F "$1" -f "$folder/known_hosts" >/dev/null && echo "finds $1" || echo "does not find $1"; }

looked_up=$("$bin/ssh" -G -F /dev/null fd00:1:0::2 true | sed -n 's/^hostname //p')
seen="ssh looks up $looked_up; ssh-keygen $(finds fd00:1:0::2) and $(finds "$looked_up")"
echo "$seen"
[ "$seen" = "ssh looks up fd00:1::2; ssh-keygen finds fd00:1:0::2 and does not find fd00:1::2" ] ||
  { echo "not as described" >&2; exit 1; }
