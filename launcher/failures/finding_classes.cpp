// SPDX-License-Identifier: Apache-2.0
// A finding itself has the figures of its host; this is what all findings of a code have in common.
#include "launcher/failures/finding_classes.h"

namespace hora::launcher {

namespace {

// clang-format off
constexpr FindingClass kClasses[] = {
    {"D_CACHE_INODES", "The file system of the cache has no inode left, so no file can be made there.", "Remove many small files there: df -i."},
    {"D_CACHE_SPACE", "Too little is free for the runtime in the cache directory.", "Free some space: horarun cache clean -H NAME."},
    {"D_CLOCK", "A host's clock is more than a second off: logs and timelines do not line up, certificates may appear invalid.", "Synchronise it: timedatectl set-ntp true."},
    {"D_CLOCKS", "The clocks of the hosts are more than 100 ms apart.", "Synchronise them: timedatectl set-ntp true."},
    {"D_CPU_QUOTA", "A cgroup allows fewer CPUs than the host shows; libraries create threads for all of them and are throttled.", "Raise the CPU limit of the container, or set OMP_NUM_THREADS."},
    {"D_DIFFERS", "The hosts differ in hardware or software, which makes ranks slow, or fail on some hosts only.", "Make the hosts alike, or leave the odd ones out."},
    {"D_GLIBC", "The C library of a host is too old for the runtime; horarun starts no rank there.", "Leave the host out, or run there in a container image with a newer system."},
    {"D_GPU_BUSY", "Other processes use the GPUs.", "Find out whose they are: nvidia-smi; fuser -v /dev/nvidia*."},
    {"D_GPU_ECC", "A GPU has uncorrected memory errors: results are wrong, or processes are killed.", "Drain the host and reset or replace the GPU: nvidia-smi -q -d ECC."},
    {"D_GPU_MEMORY", "GPU memory is in use and no process is shown that uses it.", "Find the process (fuser -v /dev/nvidia*) and end it."},
    {"D_IMPORT", "A framework cannot be imported, or fails in a tiny operation (--deep).", "Repair its installation on that host: python3 -c 'import NAME'."},
    {"D_LATENCY", "A link takes 8 times as long as the median of the hosts.", "Check switch, cable and driver of these hosts, or leave them out."},
    {"D_LEFTOVERS", "Processes of jobs that have ended still run; they hold memory, GPUs and ports.", "End them: kill PID."},
    {"D_LIBRARY", "libhora does not load or does not work; no job can run on this host.", "Read the message; it names the library or the step that failed."},
    {"D_LOAD", "Other programs use the host; its ranks will be the slow ones.", "Check it with top, or leave the host out."},
    {"D_LOOPBACK", "Two processes of one host cannot work together over TCP.", "Check the loopback interface and the firewall of the host."},
    {"D_MEMLOCK", "InfiniBand queues and buffers are locked memory, and the account may lock too little.", "Set memlock unlimited in /etc/security/limits.conf, or --ulimit memlock=-1 for a container."},
    {"D_MEMORY", "Little memory is available; the kernel kills a process when it runs out.", "Stop what uses it: ps aux --sort=-rss."},
    {"D_MEMORY_LIMIT", "A cgroup allows less than half of the host's memory; beyond that the kernel kills a rank.", "Raise the memory limit of the container or session."},
    {"D_MPI", "MPI is installed, but does not work.", "Read the message; without MPI, jobs use TCP."},
    {"D_MTU", "Packets as large as the interface allows do not pass between two hosts.", "Set the same MTU on both hosts and on what is between them."},
    {"D_NCCL", "NCCL is missing, does not load, or does not work on a GPU of the host.", "Read the message; HORA_NCCL chooses whose NCCL is used."},
    {"D_NCCL_INTERFACE", "NCCL_SOCKET_IFNAME selects no interface of a host, or lo, which leads to no other host.", "Unset it, or name an interface of every host; a list that excludes must exclude lo, too: ^docker0,lo."},
    {"D_NOFILE", "The account may open few files; a rank needs one for each peer, data loaders many more.", "Raise nofile in /etc/security/limits.conf."},
    {"D_NPROC", "The account may have few processes and threads.", "Raise nproc in /etc/security/limits.conf."},
    {"D_PIDS", "A cgroup allows few processes and threads.", "Raise the pids limit of the container."},
    {"D_PYTHON", "Python cannot be started on the host.", "Install it, or give the interpreter's path, which every host must have."},
    {"D_ROUTE", "A host cannot connect to another.", "Open TCP between the hosts, or name their common network by --network-interfaces."},
    {"D_SAME_HOST", "Two names of the list are one machine.", "Name it once, with all its slots."},
    {"D_SHARED_MEMORY", "Processes of one host cannot work together over shared memory.", "Check /dev/shm there: its size, its mount options, its permissions."},
    {"D_SHM", "/dev/shm is nearly full; when it is full, ranks fail with SIGBUS or 'No space left on device'.", "Mount it larger (docker run --shm-size=1g), or remove old files: ls -l /dev/shm."},
    {"D_SILENT", "A check got no answer in time; such a host blocks a job as well.", "Check its load and its disks; run horarun doctor for this host alone."},
    {"D_SLOTS_CPUS", "A host has more slots than usable CPUs; ranks that share a CPU wait for each other.", "Give it fewer slots: -H NAME:N."},
    {"D_SLOTS_GPUS", "A host has more slots than GPUs; NCCL refuses two ranks on one device.", "Give it fewer slots, or use --slots-per-host auto."},
    {"D_SLOW_LINK", "A link is 8 times slower than the median of the hosts.", "Check switch, cable and driver of these hosts, or leave them out."},
    {"D_STACK", "Threads get a small stack, which libraries overflow: SIGSEGV.", "Raise stack in /etc/security/limits.conf; 8192 KiB are usual."},
    {"D_TMP_SPACE", "Little is free in /tmp, where Python, compilers and frameworks write.", "Free some space: du -xh /tmp | sort -h."},
    {"D_WORLD", "A job of all hosts does not start: a host cannot reach the launcher, or did not join.", "Open TCP between the hosts and this machine, or name a network by --network-interfaces."},
    {"D_ZOMBIES", "Many processes have ended and nobody has waited for them; they keep their PIDs, perhaps GPU memory.", "Restart their parent; a container needs a first process that reaps (docker run --init)."},
};
// clang-format on

}  // namespace

std::span<const FindingClass> finding_classes() { return kClasses; }

}  // namespace hora::launcher
