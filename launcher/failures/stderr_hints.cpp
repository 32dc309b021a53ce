// SPDX-License-Identifier: Apache-2.0
// Sentences that programs print when they die, and what helps. A pattern is part of one sentence of
// a library (PyTorch, NCCL, glibc, Python), always in English: those libraries have no
// translations, and strerror() uses one only where a program asks for it by setlocale(). It is
// searched in the error that ended the rank that failed first. A new row goes in front of those
// that it is a special case of.
#include "launcher/failures/stderr_hints.h"

#include <string>

#include "launcher/failures/last_error.h"

namespace hora::launcher {

namespace {

// The narrow patterns come before the wide ones.
constexpr StderrHint kHints[] = {
    {"cuda-memory", "CUDA out of memory", "the GPU has no memory left for this rank",
     "smaller batches, or fewer ranks per GPU; nvidia-smi shows who else holds its memory"},
    {"cuda-memory", "CUDA_ERROR_OUT_OF_MEMORY", "the GPU has no memory left for this rank",
     "smaller batches, or fewer ranks per GPU; nvidia-smi shows who else holds its memory"},
    {"memory-error", "MemoryError", "the process could not get more memory",
     "smaller batches, fewer ranks on the host, or a higher limit (ulimit -v, cgroup)"},
    {"shm-full", "No space left on device: '/dev/shm", "/dev/shm of the host is full",
     "mount it larger (docker run --shm-size=1g), or remove old files there"},
    {"shm-nccl", "Error while creating shared memory segment", "/dev/shm of the host is too small",
     "mount it larger (docker run --shm-size=1g)"},
    {"carriage-return", "\\r': No such file or directory",
     "the lines of a script end in a carriage return, as those of Windows files",
     "sed -i 's/\\r$//' SCRIPT"},
    // Of GNU env, whose first line quotes the name by the user's locale.
    {"carriage-return", "use -[v]S to pass options in shebang lines",
     "the #! line of the script has options for env's program, or ends in a carriage return, as "
     "those of Windows files",
     "begin it with #!/usr/bin/env -S, or sed -i 's/\\r$//' SCRIPT"},
    {"carriage-return", "$'\\r': command not found",
     "the lines of a script end in a carriage return, as those of Windows files",
     "sed -i 's/\\r$//' SCRIPT"},
    {"disk-full", "No space left on device", "a disk or /dev/shm of the host is full",
     "df -h on that host; /dev/shm counts too"},
    {"files", "Too many open files", "the limit of open files is reached",
     "raise it (ulimit -n), or use fewer data loader workers"},
    {"stacks", "no memory for the stack of a thread is left",
     "the process may not have so much address space",
     "raise the limit (ulimit -v), or give threads smaller stacks (ulimit -s)"},
    {"threads", "Resource temporarily unavailable", "no more threads or processes can be made",
     "raise the limits (ulimit -u, the pids limit of the container), or lower OMP_NUM_THREADS"},
    {"threads", "can't start new thread", "no more threads can be made",
     "raise the limits (ulimit -u, the pids limit of the container), or lower OMP_NUM_THREADS"},
    {"glibc", "version `GLIBC_", "a library was built for a newer C library than the host has",
     "use a build for that system; horarun doctor shows each host's glibc"},
    {"libstdc++", "version `GLIBCXX_",
     "a library was built for a newer C++ runtime than the host has",
     "install a newer libstdc++ there (conda install libstdcxx-ng), or use a build for that "
     "system"},
    {"library", "cannot open shared object file", "a shared library is missing on that host",
     "install it there, or set LD_LIBRARY_PATH for the ranks; 'ldd PROGRAM' shows which"},
    {"nccl-symbol", "undefined symbol: nccl",
     "another NCCL was loaded than the framework was built for",
     "remove the second NCCL package; horarun doctor lists the copies"},
    {"symbol",
     "undefined symbol:", "a library of another version was loaded than the program was built for",
     "look at LD_LIBRARY_PATH and LD_PRELOAD; 'ldd PROGRAM' shows which file is taken"},
    {"python-module", "ModuleNotFoundError: No module named",
     "a Python module is missing on that host",
     "install it in the same environment on every host; horarun doctor shows each host's Python"},
    {"python-file", "can't open file", "the script is not on that host, or not in that directory",
     "send it along with --ship FILE, name it by a path that all hosts share, or set --wdir"},
    {"python-syntax",
     "SyntaxError:", "the host's Python does not understand the script, it may be older",
     "horarun doctor shows each host's version"},
    {"python-import", "ImportError:", "a Python module could not be loaded on that host",
     "run 'python3 -c \"import MODULE\"' there"},
    {"nccl-interface", "no socket interface found",
     "NCCL_SOCKET_IFNAME selects no interface of that host",
     "unset it, or name an interface of every host; horarun doctor lists them"},
    {"nccl-system", "unhandled system error",
     "NCCL could not make a connection or a shared segment",
     "run again with NCCL_DEBUG=WARN; horarun doctor checks routes, /dev/shm and lockable memory"},
    {"nccl-cuda", "unhandled cuda error", "NCCL and the CUDA driver do not fit, or a GPU failed",
     "run again with NCCL_DEBUG=WARN; horarun doctor compares drivers"},
    {"cuda-driver", "CUDA driver version is insufficient", "the driver is older than CUDA asks for",
     "a newer driver, or a framework for an older CUDA; horarun doctor compares them"},
    {"cuda-none", "no CUDA-capable device is detected", "no GPU is visible to this rank",
     "look at CUDA_VISIBLE_DEVICES, and at nvidia-smi on that host"},
    {"cuda-assert", "device-side assert triggered", "a kernel found a wrong index or value",
     "run again with CUDA_LAUNCH_BLOCKING=1: the trace then names the place"},
    {"gpu-memory-error", "uncorrectable ECC error", "the GPU's memory is damaged",
     "take the host out of use and reset the GPU; 'dmesg | grep Xid' there tells which"},
    {"cuda-error", "CUDA error:", "an operation on the GPU failed",
     "run again with CUDA_LAUNCH_BLOCKING=1: the trace then names the place; 'dmesg | grep Xid' on "
     "that host tells whether it is the GPU"},
    // A script without "#!" is a script of sh, whatever its name.
    {"python-by-sh", ": import: not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"python-by-sh", ": from: not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"python-by-sh", "import: command not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"init-waits", "to start (HOROVOD_GLOO_TIMEOUT_SECONDS",
     "who is missing has not called init() in time: it is slow, hangs before it, or its program "
     "does not call it",
     "run again and press Ctrl-\\, which shows where they stand; every program of a job has to "
     "call "
     "init()"},
    {"init-of-others", "joining the job: connecting to rank 0",
     "rank 0 did not let this rank in, or a firewall is in between",
     "look at what rank 0 says; horarun doctor tries the connections"},
    {"address-in-use", "Address already in use", "the port is taken, perhaps by an earlier job",
     "let the launcher choose: leave MASTER_PORT alone; ss -ltnp shows the owner"},
    {"refused", "Connection refused",
     "a peer that should listen does not: it has not started, or has died",
     "look at the other ranks' last lines; the first failure above counts"},
    {"rendezvous", "rendezvous: connecting to",
     "the rank cannot connect back to the machine where horarun runs: a firewall, or a jump host "
     "(ProxyJump), is in between",
     "open TCP from the hosts to that machine, or start horarun on the jump host or on one of the "
     "hosts; horarun doctor tries that way, too"},
    {"timed-out", "Connection timed out",
     "a peer does not answer: a firewall, or the wrong network",
     "horarun doctor tries every way between the hosts; name a network by --network-interfaces"},
    {"reset", "Connection reset by peer", "a peer has died", "look at the other ranks' last lines"},
    {"permission", "Permission denied", "the rank may not read, write or execute that",
     "ls -l on that host, as the same user"},
    {"bus-error", "Bus error",
     "memory that was promised could not be had: /dev/shm is full, or a file shrank",
     "df -h /dev/shm on that host"},
    {"locked-memory", "ibv_create_cq", "InfiniBand queues need more lockable memory",
     "memlock unlimited in /etc/security/limits.conf (ulimit -l)"},
    {"left-early", ") has shut down",
     "that rank ended its program, or called shutdown(), while this one had more to do",
     "give all ranks the same number of steps; hvd.join() lets those that have fewer wait"},
    {"horovod-shutdown", "has been shut down", "another rank ended first; this one only noticed",
     "look for the rank that failed first"},
};

}  // namespace

std::span<const StderrHint> stderr_hints() { return kHints; }

const StderrHint* find_stderr_hint(std::string_view text) {
  for (const std::string& error : last_errors(text)) {
    for (const StderrHint& hint : kHints) {
      if (error.find(hint.pattern) != std::string::npos) return &hint;
    }
  }
  return nullptr;
}

}  // namespace hora::launcher
