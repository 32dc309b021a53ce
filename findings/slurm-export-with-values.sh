#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; 22.05.8 behaves alike
# behaviour: `srun --export=ALL,FOO=1` starts tasks with FOO=2 where FOO is 2 in the environment of srun: the given value
#            counts only for a variable that is not set there. `sbatch --export=ALL,FOO=1` sets 1, and so does
#            `srun --export=FOO=1`, without ALL.
# guess:     a value on the command line wins over the environment; srun(1): "will propagate all environment variables
#            [...] and additionally", and both programs have the same option
# seen:      2026-11-29: srun 2, srun without ALL 1, sbatch 1
# relies:    docs/reference/peer-options.md, `--export`: of `horarun -x FOO=1` the given value wins
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
cat >"$root/s/job" <<'END'
#!/bin/sh
echo "sbatch: $FOO"
END
cat >"$root/s/run" <<'END'
export SLURM_CONF=/s/slurm.conf
slurmctld
slurmd -N v1
for _ in $(seq 60); do [ "$(sinfo -h -o %T)" = idle ] && break; sleep 0.5; done
export FOO=2
srun --export=ALL,FOO=1 sh -c 'echo "srun: $FOO"'
srun --export=FOO=1 /bin/sh -c 'echo "srun, without ALL: $FOO"'
sbatch -Q --wait --output=/s/output --export=ALL,FOO=1 /s/job && cat /s/output
END
# The daemons end with the namespace.
said=$(unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc $root/proc && mount --bind /dev $root/dev &&
  exec timeout 120 chroot $root sh /s/run" 2>/dev/null) || true
echo "$said"
[ "$said" = $'srun: 2\nsrun, without ALL: 1\nsbatch: 1' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
