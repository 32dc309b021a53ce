#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   Slurm 22.05.8 (slurm-client of Debian 12), ClusterShell 1.9.3, python-hostlist 2.3.0
# behaviour: three readers of one notation for host ranges disagree. Slurm lets the second of three ranges count
#            slowest, the others the first. Slurm refuses text after the last range, and keeps hosts that are named
#            twice twice; ClusterShell refuses ends of different width, and sorts.
# guess:     n[1-2]x[1-2]y[1-2] names the same hosts in the same order everywhere, as its users copy it from tool to tool
# seen:      2026-11-28, the table that the script prints
# relies:    launcher/plan/selection.cpp: the order of python-hostlist, the widths of Slurm, text after a range
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get >/dev/null || { echo "needs apt-get for Slurm's package"; exit 77; }

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ClusterShell==1.9.3 python-hostlist==2.3.0
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq {slurm-client,slurm-wlm-basic-plugins}=22.05.8-4+deb12u3 &&
  for package in *.deb; do dpkg -x "$package" slurm; done)
libraries=$(echo "$folder"/slurm/usr/lib/*/slurm-wlm)
printf '%s\n' ClusterName=c SlurmctldHost=localhost NodeName=n1 "PluginDir=$libraries" >"$folder/slurm.conf"

slurm() {
  LD_LIBRARY_PATH=$libraries SLURM_CONF=$folder/slurm.conf \
    "$folder/slurm/usr/bin/scontrol" show hostnames "$1" 2>/dev/null | paste -sd ' ' || echo refused
}
clustershell() { "$folder/venv/bin/nodeset" -e "$1" 2>/dev/null || echo refused; }
hostlist() { "$folder/venv/bin/hostlist" -e -s ' ' "$1" 2>/dev/null || echo refused; }

set +o pipefail
seen=$(for range in 'n[1-2]x[1-2]y[1-2]' 'n[1-2]-ib' 'n[8-011]' 'n2,n[1-2]'; do
  for reader in slurm clustershell hostlist; do
    names=$($reader "$range")
    echo "$range $reader: ${names:-refused}"
  done
done)
echo "$seen"
[ "$seen" = "n[1-2]x[1-2]y[1-2] slurm: n1x1y1 n1x1y2 n2x1y1 n2x1y2 n1x2y1 n1x2y2 n2x2y1 n2x2y2
n[1-2]x[1-2]y[1-2] clustershell: n1x1y1 n1x1y2 n1x2y1 n1x2y2 n2x1y1 n2x1y2 n2x2y1 n2x2y2
n[1-2]x[1-2]y[1-2] hostlist: n1x1y1 n1x1y2 n1x2y1 n1x2y2 n2x1y1 n2x1y2 n2x2y1 n2x2y2
n[1-2]-ib slurm: refused
n[1-2]-ib clustershell: n1-ib n2-ib
n[1-2]-ib hostlist: n1-ib n2-ib
n[8-011] slurm: n8 n9 n10 n11
n[8-011] clustershell: refused
n[8-011] hostlist: n8 n9 n10 n11
n2,n[1-2] slurm: n2 n1 n2
n2,n[1-2] clustershell: n1 n2
n2,n[1-2] hostlist: n1 n2" ] || { echo "the readers no longer behave as described" >&2; exit 1; }
