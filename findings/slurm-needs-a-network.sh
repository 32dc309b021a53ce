#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# package    Slurm 22.05.8 (Debian 12: slurmctld 22.05.8-4+deb12u3); the same with 26.05.5 of Debian sid
# behaviour  slurmctld (and slurmd) cannot listen on a machine whose only addresses are 127.0.0.1 and ::1, although
#            slurm.conf names 127.0.0.1: it asks the resolver for addresses of kinds that the machine has "configured", and
#            loopback does not count. It tries for 10 s. Any other address helps, even one on the loopback interface.
# guess      A cluster of one machine on 127.0.0.1 needs no network.
# seen       2026-11-28: "loopback alone: getaddrinfo() failed: Name or service not known"; "with 10.99.0.1/32: running"
# relies     tests/integration/roots/test_newest.py adds an address to its network namespace before it starts Slurm
set -euo pipefail

[ "$(id -u)" = 0 ] && command -v ip >/dev/null || exit 77
unshare --net true || exit 77
folder=$(mktemp -d)
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download slurmctld=22.05.8-4+deb12u3 slurm-wlm-basic-plugins=22.05.8-4+deb12u3 || exit 77
for package in *.deb; do dpkg-deb --extract "$package" .; done
plugins=$(find "$folder/usr/lib" -type d -name slurm-wlm -o -type d -name slurm | head -n 1)
cat >slurm.conf <<.
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
AuthType=auth/none
CredType=cred/none
PluginDir=$plugins
StateSaveLocation=$folder
SlurmctldPidFile=$folder/slurmctld.pid
ProctrackType=proctrack/linuxproc
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=localhost CPUs=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
.
# The addresses in addition to those of loopback; the log.
run() {
  LD_LIBRARY_PATH=$plugins timeout 15 unshare --net sh -c '
    ip link set lo up
    [ -z "$1" ] || ip address add "$1" dev lo
    exec "$2/usr/sbin/slurmctld-wlm" -D -f "$2/slurm.conf"' sh "$1" "$folder" >"$2" 2>&1 || :
}
run "" alone
run 10.99.0.1/32 more
grep -m 1 "getaddrinfo" alone
grep -m 1 "Running as primary controller" more || { cat more; exit 1; }
