#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; seen with 22.05.8 and 26.05.5, too
# behaviour: SLURM_OVERLAP=0 and SLURM_OVERLAP=no in the environment of srun turn --overlap on, as SLURM_OVERLAP=1 does.
#            SLURM_LABELIO=0 leaves --label off.
# guess:     they leave it off: srun(1) says that a flag is set by an empty value, "yes" or a number but zero, and by no other
# seen:      2026-11-28, alongside a step that has all processors: without the variable "Requested nodes are busy", with
#            each of the three values the step runs
# relies:    step() in launcher/engines/slurm.cpp, which leaves the variable out where steps must not overlap
set -euo pipefail
[ "$(id -u)" = 0 ] && command -v debootstrap unshare >/dev/null || { echo "needs root and debootstrap"; exit 77; }
version=24.11.5-4+deb13u1
folder=$(mktemp -d /var/tmp/finding.XXXXXX)
root=$folder/root
trap 'rm -rf --one-file-system "$folder"' EXIT
packages="slurmd=$version slurmctld=$version slurm-client=$version slurm-wlm-basic-plugins=$version"
if ! {
  debootstrap --variant=minbase trixie "$root" http://deb.debian.org/debian
  # shellcheck disable=SC2086
  chroot "$root" apt-get -qq -y --no-install-recommends --download-only install $packages
  # Unpacked and not set up: munge's set-up wants a daemon.
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
} >"$folder/log" 2>&1; then
  tail -n 5 "$folder/log"
  exit 77
fi
for program in "$root"/usr/sbin/slurm*-wlm; do
  [ ! -e "$program" ] || ln -sf "${program##*/}" "${program%-wlm}"
done
host=$(hostname -s)
mkdir -p "$root/s/state" "$root/s/spool"
echo CgroupPlugin=disabled >"$root/s/cgroup.conf"
cat >"$root/s/slurm.conf" <<END
ClusterName=finding
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/s/state
SlurmdSpoolDir=/s/spool
SlurmdParameters=config_overrides
SlurmctldLogFile=/s/slurmctld.log
SlurmdLogFile=/s/slurmd.log
SlurmctldPidFile=/s/slurmctld.pid
SlurmdPidFile=/s/slurmd.pid
NodeName=v1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
END
cat >"$root/s/run" <<'END'
export SLURM_CONF=/s/slurm.conf
slurmctld
slurmd -N v1
for _ in $(seq 60); do [ "$(sinfo -h -o %T)" = idle ] && break; sleep 0.5; done
salloc -Q -N1 -n2 sh -c '
  srun --exact -n2 sleep 60 & first=$!
  until [ -n "$(squeue -h -s -o %i -j $SLURM_JOB_ID | grep "[.]0$")" ]; do sleep 0.2; done
  for value in none 0 no 1; do
    [ $value = none ] || export SLURM_OVERLAP=$value
    srun --exact -n2 --immediate=1 true 2>/dev/null && echo "$value: runs" || echo "$value: busy"
  done
  echo "label: $(SLURM_LABELIO=0 srun -n1 echo whole)"
  kill $first'
END
# The daemons end with the namespace.
said=$(unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc $root/proc && mount --bind /dev $root/dev &&
  exec timeout 120 chroot $root sh /s/run" 2>/dev/null) || true
echo "$said"
[ "$said" = $'none: busy\n0: runs\nno: runs\n1: runs\nlabel: whole' ]
