#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client and openssh-server of Debian 12)
# behaviour: a line `host` of known_hosts vouches for the servers of that host on all ports, as long as there is no line
#            `[host]:port`; with StrictHostKeyChecking=yes, too. `ssh-keygen -F [host]:port` does not find it. The line
#            `[host]:port` vouches for that port alone.
# guess:     `host` is for port 22: ssh writes and looks up `[host]:port` for any other, as sshd(8) describes it
# seen:      2026-11-29, the lines that the script compares
# relies:    KnownHost::line_about() in launcher/transports/known_hosts.cpp, which looks a host up without its port, too;
#            "without the port a host is only confirmed" in its test
set -euo pipefail
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -o APT::Sandbox::User=root -qq download openssh-server=1:9.2p1-2+deb12u10 openssh-client=1:9.2p1-2+deb12u10 ||
  { echo "the packages cannot be had here"; exit 77; }
for package in *.deb; do dpkg -x "$package" .; done
for key in host other; do usr/bin/ssh-keygen -q -t ed25519 -N '' -f $key; done
printf '%s\n' "HostKey $folder/host" 'UsePAM no' >sshd_config
as_user=()
if [ "$(id -u)" = 0 ]; then  # as root, sshd would want a folder below /run
  as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$folder")
  chown -R 65534:65534 "$folder"
fi
line() { echo "$1 $(cut -d ' ' -f 1,2 "$2.pub")"; }
# The port, and the lines of known_hosts. The login itself is to fail.
answer() {
  printf '%s\n' "${@:2}" >known_hosts
  "${as_user[@]}" usr/bin/ssh -F none -p "$1" -o UserKnownHostsFile="$folder/known_hosts" -o GlobalKnownHostsFile=none \
    -o StrictHostKeyChecking=yes -o ProxyCommand="$folder/usr/sbin/sshd -i -f $folder/sshd_config" -o BatchMode=yes \
    -o PreferredAuthentications=none h true >log 2>&1 </dev/null || true
  sed -n 's/.*Permission denied.*/trusted/p; s/^Host key verification failed.*/refused/p' log
}
seen="h, port 2222: $(answer 2222 "$(line h host)")
h, ssh-keygen: $(usr/bin/ssh-keygen -F '[h]:2222' -f known_hosts >/dev/null && echo found || echo not found)
h and [h]:2222 of another key, port 2222: $(answer 2222 "$(line h host)" "$(line '[h]:2222' other)")
[h]:2222, port 22: $(answer 22 "$(line '[h]:2222' host)")"
echo "$seen"
[ "$seen" = 'h, port 2222: trusted
h, ssh-keygen: not found
h and [h]:2222 of another key, port 2222: refused
[h]:2222, port 22: refused' ] || { echo "OpenSSH no longer behaves as described" >&2; exit 1; }
