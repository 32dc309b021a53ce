#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client and openssh-server of Debian 12); ssh of 10.6p1 behaves alike
# behaviour: of several lines or options SetEnv, the first alone counts, in ssh_config, in `ssh -o` and in sshd_config. Lines
#            SendEnv and AcceptEnv add up.
# guess:     each line sets its variables, as each line SendEnv sends its own
# seen:      2026-11-29, the lines that the script compares
# relies:    docs/reference/transports.md: SetEnv is left to the ssh program; the job's environment travels without it
set -euo pipefail
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -o APT::Sandbox::User=root -qq download openssh-server=1:9.2p1-2+deb12u10 openssh-client=1:9.2p1-2+deb12u10 ||
  { echo "the packages cannot be had here"; exit 77; }
for package in *.deb; do dpkg -x "$package" .; done
as_user=()
if [ "$(id -u)" = 0 ]; then  # as root, sshd would want a folder below /run
  as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$folder")
  chown -R 65534:65534 "$folder"
fi
"${as_user[@]}" usr/bin/ssh-keygen -q -t ed25519 -N '' -f key
printf '%s\n' 'Host near' '  SetEnv A=1' '  SendEnv X' 'Host *' '  SetEnv B=2' '  SendEnv Y' >config
printf '%s\n' "HostKey $folder/key" 'SetEnv A=1' 'SetEnv B=2' 'AcceptEnv X' 'AcceptEnv Y' >sshd_config
names() { grep -E '^(setenv|sendenv|acceptenv) ' | sort | paste -sd ','; }
seen="options: $(usr/bin/ssh -G -F /dev/null -o SetEnv=A=1 -o SetEnv=B=2 -o SendEnv=X -o SendEnv=Y near </dev/null | names)
file: $(usr/bin/ssh -G -F config near </dev/null | names)
sshd: $("${as_user[@]}" usr/sbin/sshd -T -f "$folder/sshd_config" | names)"
echo "$seen"
[ "$seen" = 'options: sendenv X,sendenv Y,setenv A=1
file: sendenv X,sendenv Y,setenv A=1
sshd: acceptenv X,acceptenv Y,setenv A=1' ] || { echo "OpenSSH no longer behaves as described" >&2; exit 1; }
