#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   OpenSSH 9.2p1 (openssh-client of Debian 12), paramiko 5.1.0, asyncssh 2.24.1
# behaviour: three readers of one ~/.ssh/config disagree. paramiko makes a comment at the end of a line part of the value, drops
#            what a file of Include says, and takes n[1-3] for a set of characters; asyncssh takes Host n1,n2 for two
#            patterns, ignores `Match final`, and refuses comments at the end and times with units.
# guess:     what works with ssh works, with the exception of rare keywords; Port, Host and Include are not rare
# seen:      2026-11-30, the table that the script prints: the port for n1, by ssh, paramiko and asyncssh
# relies:    launcher/transports/ssh_target.cpp: what ssh makes of a configuration is asked of `ssh -G`
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get for OpenSSH's package"; exit 77; }
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q paramiko==5.1.0 asyncssh==2.24.1 || { echo "needs PyPI"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq openssh-client=1:9.2p1-2+deb12u10 && dpkg -x ./*.deb root)
cat >"$folder/ask.py" <<'PYTHON'
import os
import subprocess
import sys

import asyncssh
import paramiko

folder = sys.argv[1]
included = os.path.join(folder, "included")
with open(included, "w") as file:
    file.write("Port 2222\n")


def by_ssh(path):
    ssh = os.path.join(folder, "root/usr/bin/ssh")
    said = subprocess.run([ssh, "-G", "-T", "-F", path, "n1"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)["port"]


def by_paramiko(path):
    return paramiko.SSHConfig.from_path(path).lookup("n1").get("port", "22")


def by_asyncssh(path):
    try:
        return str(asyncssh.SSHClientConnectionOptions(config=[path], host="n1").port)
    except asyncssh.ConfigParseError:
        return "refused"


for name, text in {
    "plain": "Host n1\nPort 2222\n",
    "comment": "Host n1\nPort 2222 # here\n",
    "Include": f"Host n1\nInclude {included}\n",
    "Host n1,n2": "Host n1,n2\nPort 2222\n",
    "Host n[1-3]": "Host n[1-3]\nPort 2222\n",
    "Match final": "Match final\nPort 2222\n",
    "unit": "Host n1\nPort 2222\nConnectTimeout 1m\n",
}.items():
    path = os.path.join(folder, "config")
    with open(path, "w") as file:
        file.write(text)
    print(name, by_ssh(path), by_paramiko(path), by_asyncssh(path), sep=" | ")
PYTHON
seen=$("$folder/venv/bin/python" -W ignore "$folder/ask.py" "$folder")
echo "$seen"
[ "$seen" = "plain | 2222 | 2222 | 2222
comment | 2222 | 2222 # here | refused
Include | 2222 | 22 | 2222
Host n1,n2 | 22 | 22 | 2222
Host n[1-3] | 22 | 2222 | 22
Match final | 2222 | 2222 | 22
unit | 2222 | 2222 | refused" ] || { echo "the readers no longer behave as described" >&2; exit 1; }
