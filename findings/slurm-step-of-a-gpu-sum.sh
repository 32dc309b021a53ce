#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; seen with 22.05.8 and 26.05.5, too
# behaviour: in a job of two nodes and `--gpus=4`, a step on one node that asks for no GPU is refused. As a step of an
#            external launcher it starts, and has that node's two GPUs.
# guess:     the step has the GPUs of its node: srun(1) says that by default a step gets all that its job has
# seen:      2026-11-28, srun --overlap -N1: error: Unable to create step for job 1: Invalid generic resource (gres)
#            specification; with SLURM_EXTERNAL_LAUNCHER=1: 0,1
# relies:    launcher/engines/slurm.cpp
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
for program in "$root"/usr/sbin/slurm*-wlm "$root"/usr/bin/s*-wlm; do
  [ ! -e "$program" ] || ln -sf "${program##*/}" "${program%-wlm}"
done
host=$(hostname -s)
mkdir -p "$root/s/state" "$root/s/spool"
for k in 0 1; do mknod -m 666 "$root/s/gpu$k" c 1 3; done
printf 'Name=gpu File=/s/gpu%s\n' 0 1 >"$root/s/gres.conf"
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
SlurmdSpoolDir=/s/spool/%n
SlurmdParameters=config_overrides
GresTypes=gpu
SlurmctldLogFile=/s/slurmctld.log
SlurmdLogFile=/s/slurmd-%n.log
SlurmctldPidFile=/s/slurmctld.pid
SlurmdPidFile=/s/slurmd-%n.pid
NodeName=v[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=500 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
END
cat >"$root/s/run" <<'END'
export SLURM_CONF=/s/slurm.conf
slurmctld
for k in 1 2; do mkdir -p /s/spool/v$k && slurmd -N v$k; done
for _ in $(seq 60); do [ "$(sinfo -h -o %T)" = idle ] && break; sleep 0.5; done
salloc -Q -N2 --gpus=4 sh -c 'unset SLURM_GPUS
  srun --overlap -N1 -n1 sh -c "echo plain: \$CUDA_VISIBLE_DEVICES" 2>&1
  SLURM_EXTERNAL_LAUNCHER=1 srun -N1 -n1 sh -c "echo external: \$CUDA_VISIBLE_DEVICES" 2>&1'
END
# The daemons end with the namespace.
said=$(unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc $root/proc && mount --bind /dev $root/dev &&
  exec timeout 90 chroot $root sh /s/run" 2>&1) || true
echo "$said"
grep -q 'Invalid generic resource (gres) specification' <<<"$said" && grep -q '^external: 0,1$' <<<"$said"
