#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client of Debian 12); 10.0p2 and 10.6p1 behave alike
# behaviour: `ssh -G` prints neither what the file says nor what ssh uses. The names of UserKnownHostsFile have their
#            tokens filled in, those of IdentityFile and GlobalKnownHostsFile do not. Names in a list stand with one blank
#            in between and without quotes, so that one name with a blank and two names look the same.
# guess:     the output is a configuration again: given to `ssh -F`, it means the same
# seen:      2026-11-28: identityfile ~/%h|globalknownhostsfile ~/%h|userknownhostsfile /a known hosts /b/h1
# relies:    launcher/transports/ssh_target.cpp, files_of(): a name without a slash at its start is part of another one
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get for OpenSSH's package"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq openssh-client=1:9.2p1-2+deb12u10 && dpkg -x ./*.deb root)
ssh=$folder/root/usr/bin/ssh

printf '%s\n' 'UserKnownHostsFile "/a known hosts" /b/%h' 'GlobalKnownHostsFile ~/%h' 'IdentityFile ~/%h' >"$folder/two"
printf '%s\n' 'UserKnownHostsFile /a "known hosts" /b/%h' >"$folder/three"
names() { "$ssh" -G -F "$1" h1 true | grep -E '^(userknown|globalknown|identityfile)' | paste -sd '|'; }

seen=$(names "$folder/two")
echo "$seen"
other=$("$ssh" -G -F "$folder/three" h1 true | grep '^userknown')
[ "$seen" = 'identityfile ~/%h|globalknownhostsfile ~/%h|userknownhostsfile /a known hosts /b/h1' ] &&
  [ "$other" = 'userknownhostsfile /a known hosts /b/h1' ] ||
  { echo "ssh -G prints something else: $seen, $other" >&2; exit 1; }
