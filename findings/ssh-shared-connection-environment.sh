#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client and openssh-server of Debian 12)
# behaviour: of an ssh that uses the connection of a ControlMaster, SetEnv has no effect, and SendEnv sends only what the
#            master's SendEnv names, too. The master's SetEnv reaches the commands of all others.
# guess:     each command has the environment that its own ssh sends, as with a connection of its own
# seen:      2026-11-29, the lines that the script compares: "sent/set" as the command sees them
# relies:    launcher/transports/ssh_target.cpp uses an open ControlPath by the ssh program; the job's environment travels in
#            the stream to the agent (docs/reference/transports.md)
set -euo pipefail
[ "$(id -u)" = 0 ] && unshare --mount true || { echo "needs root"; exit 77; }
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -o APT::Sandbox::User=root -qq download openssh-server=1:9.2p1-2+deb12u10 openssh-client=1:9.2p1-2+deb12u10 ||
  { echo "the packages cannot be had here"; exit 77; }
for package in *.deb; do dpkg -x "$package" .; done
for key in host user; do usr/bin/ssh-keygen -q -t ed25519 -N '' -f $key; done
printf '%s\n' "HostKey $folder/host" "AuthorizedKeysFile $folder/user.pub" 'UsePAM no' 'StrictModes no' 'AcceptEnv SENT SET' \
  'PermitRootLogin yes' >sshd_config
echo "* $(cut -d ' ' -f 1,2 host.pub)" >known_hosts
cat >config <<END
Host *
  User root
  IdentityFile $folder/user
  IdentitiesOnly yes
  UserKnownHostsFile $folder/known_hosts
  ProxyCommand $folder/usr/sbin/sshd -i -f $folder/sshd_config
END
cat >steps <<'END'
mount -t tmpfs tmpfs /run && mkdir /run/sshd
run() { timeout 60 usr/bin/ssh -T -F config "$@" h 'echo "${SENT-}/${SET-}"'; }
own="-o SendEnv=SENT -o SetEnv=SET=mine"
export SENT=mine
echo "a connection of its own: $(run $own)"
start() { SENT=master timeout 60 usr/bin/ssh -F config -M -N -f -S master "$@" h; }
start
echo "a plain master: $(run -S master $own)"
usr/bin/ssh -F config -S master -O exit h
start -o SendEnv=SENT -o SetEnv=SET=master
echo "a master with both: $(run -S master $own)"
echo "the same, without options: $(run -S master)"
usr/bin/ssh -F config -S master -O exit h
END
seen=$(unshare --mount --pid --fork --kill-child sh steps 2>log) || cat log
echo "$seen"
[ "$seen" = 'a connection of its own: mine/mine
a plain master: /
a master with both: mine/master
the same, without options: /master' ] || { echo "OpenSSH no longer behaves as described" >&2; exit 1; }
