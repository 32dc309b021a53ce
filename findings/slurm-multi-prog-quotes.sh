#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   slurmd, slurmctld and slurm-client 24.11.5-4+deb13u1 of Debian 13; 22.05.8 behaves alike
# behaviour: in a file of `srun --multi-prog`, double quotes quote nothing: `sh -c "echo one two"` has the arguments
#            `-c`, `"echo`, `one` and `two"`. Single quotes do, and keep srun from replacing the %t and %o in them.
# guess:     both quotes group words, and %t is replaced everywhere, as the examples in srun(1) have it
# seen:      2026-11-29, the lines that the script compares
# relies:    launcher/options/program_sections.cpp (read_program_line) reads both quotes as a shell does, and replaces %t in
#            them; cli.md, "Several programs"
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
cat >"$root/s/programs" <<'END'
0 printf '[%s]' "one two" %t
1 printf '[%s]' 'one two' '%t'
END
cat >"$root/s/run" <<'END'
export SLURM_CONF=/s/slurm.conf
slurmctld
slurmd -N v1
for _ in $(seq 60); do [ "$(sinfo -h -o %T)" = idle ] && break; sleep 0.5; done
srun -n2 --label --multi-prog /s/programs | sort
END
# The daemons end with the namespace.
said=$(unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc $root/proc && mount --bind /dev $root/dev &&
  exec timeout 120 chroot $root sh /s/run" 2>/dev/null) || true
echo "$said"
[ "$said" = $'0: ["one][two"][0]\n1: [one two][%t]' ] || { echo "Slurm no longer behaves as described" >&2; exit 1; }
