// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <signal.h>

#include <cerrno>

#include <catch2/catch.hpp>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

RankExit failed_at(SpawnStage stage, int errnum, std::string program = {}) {
  RankExit exit;
  exit.stage = stage;
  exit.errnum = errnum;
  exit.program = std::move(program);
  return exit;
}

}  // namespace

TEST_CASE("a rank that ran: its code or its signal") {
  RankExit exit;
  exit.exit_code = 3;
  CHECK(how_it_ended(exit) == "exited with code 3");
  CHECK(start_failure_text(exit).empty());
  exit.exit_code = 0;
  exit.signal = SIGSEGV;
  exit.core_dumped = true;
  CHECK(how_it_ended(exit) == "was killed by SIGSEGV (core dumped)");
}

TEST_CASE("a rank that was not started: the step, the program, the reason") {
  CHECK(how_it_ended(failed_at(SpawnStage::kSearch, 0, "x")) ==
        "could not be started: executing x: not found in PATH");
  CHECK(start_failure_text(failed_at(SpawnStage::kSearch, EACCES, "/x")) ==
        "executing /x: Permission denied");
  CHECK(start_failure_text(failed_at(SpawnStage::kClone, EAGAIN)) ==
        "creating a process: Resource temporarily unavailable");
  CHECK(start_failure_text(failed_at(SpawnStage::kPipes, EMFILE)) ==
        "creating a pipe: Too many open files");
  CHECK(start_failure_text(failed_at(SpawnStage::kExecute, E2BIG, "/x"))
            .find("larger than this machine allows") != std::string::npos);
  // A name of the program is a host's word, and shown on a terminal.
  CHECK(start_failure_text(failed_at(SpawnStage::kExecute, EACCES, "/x\x1b[2J")).find('\x1b') ==
        std::string::npos);
}

TEST_CASE("a missing interpreter is named") {
  RankExit exit = failed_at(SpawnStage::kInterpreter, ENOENT, "/x");
  CHECK(start_failure_text(exit) == "executing /x: its interpreter does not exist");
  exit.interpreter = "/no/python";
  CHECK(start_failure_text(exit) == "executing /x: its interpreter '/no/python' does not exist");
  exit.interpreter = "/bin/sh\r";
  CHECK(start_failure_text(exit).find("carriage return") != std::string::npos);
  CHECK(start_failure_text(failed_at(SpawnStage::kInterpreter, ENOEXEC, "/x"))
            .find("longer than the kernel reads") != std::string::npos);
}

TEST_CASE("a missing loader is named, with the C library that it belongs to") {
  RankExit exit = failed_at(SpawnStage::kInterpreter, ENOENT, "/x");
  exit.code = failure::kLoader;
  exit.interpreter = "/lib/ld-musl-x86_64.so.1";
  CHECK(start_failure_text(exit) ==
        "executing /x: its dynamic loader '/lib/ld-musl-x86_64.so.1' does not exist: it was built "
        "for musl, as of Alpine Linux");
  const auto ending = [&exit](const char* loader) {
    exit.interpreter = loader;
    const std::string text = start_failure_text(exit);
    return text.substr(text.rfind("built for ") + 10);
  };
  CHECK(ending("/lib64/ld-linux-x86-64.so.2") == "glibc");
  CHECK(ending("/lib/ld-linux-aarch64.so.1") == "glibc");
  CHECK(ending("/lib/ld-linux.so.2") == "glibc and 32-bit x86");
  CHECK(ending("/lib/ld-linux-armhf.so.3") == "glibc and 32-bit ARM");
  CHECK(ending("/nix/store/x-glibc/lib/ld-linux-x86-64.so.2") == "another system's folders");
}

// The hint belongs to the error that ended the program, in logs as programs write them.

using namespace hora::launcher;

namespace {

std::string hint_of(std::string_view log) {
  const StderrHint* const hint = find_stderr_hint(log);
  return hint == nullptr ? "" : std::string(hint->id);
}

constexpr const char* kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    main()  # never raises ImportError: tried\n"
    "    ^^^^^^\n";

std::string traceback(const std::string& exception) { return kTraceback + exception + "\n"; }

std::string many(const std::string& line, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line + " " + std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("last error: of an exception, its own message counts") {
  const std::string missing =
      "dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory\n";
  CHECK(hint_of(traceback("ModuleNotFoundError: No module named 'apex'")) == "python-module");
  CHECK(hint_of(
            "2026-11-28 12:00:00.1: W tsl/dso_loader.cc:64] Could not load 'libcudart.so.11.0'; " +
            missing + traceback("ValueError: rcut must be positive")) == "");
  CHECK(hint_of(missing + traceback("KeyError: 'lr'")) == "");
  CHECK(hint_of(missing + traceback("mylib.errors.Stopped")) == "");
  CHECK(hint_of(traceback("ModuleNotFoundError: No module named 'apex'") + many("epoch", 40)) ==
        "");
  CHECK(hint_of(traceback("ModuleNotFoundError: No module named 'apex'") + "falling back\n" +
                traceback("ValueError: no data")) == "");
  CHECK(hint_of(traceback("ValueError: no data") +
                traceback("OSError: [Errno 24] Too many open files: 'a'")) == "files");
  CHECK(hint_of("  File \"train.py\", line 3\n    print 1\n    ^^^^^^^\nSyntaxError: Missing "
                "parentheses\n") == "python-syntax");
  const std::string missing_module = traceback("ModuleNotFoundError: No module named 'apex'");
  CHECK(hint_of(missing_module + many("epoch", 3) + "train.py: no data in /data\n") == "");
  CHECK(hint_of(missing_module + "wandb: You can sync this run\n" +
                "Segmentation fault (core dumped)\n") == "python-module");
  CHECK(hint_of(missing_module +
                "\nThe above exception was the direct cause of the following exception:\n\n" +
                traceback("RuntimeError: apex is needed")) == "python-module");
}

TEST_CASE("last error: a message of several lines") {
  CHECK(hint_of(traceback(
            "RuntimeError: CUDA error: device-side assert triggered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n")) == "cuda-assert");
  const std::string nccl =
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:317, unhandled "
      "system error (run with "
      "NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
      "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
      "device error.\n"
      "Last error:\n";
  CHECK(hint_of(traceback(nccl + "Call to connect returned Software caused connection abort")) ==
        "nccl-system");
  CHECK(hint_of(traceback(nccl + "Bootstrap : no socket interface found")) == "nccl-interface");
  CHECK(hint_of(traceback(
            nccl + "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)")) ==
        "shm-nccl");
  CHECK(hint_of(traceback("RuntimeError: Caught OSError in DataLoader worker process 0.\n" +
                          std::string(kTraceback) +
                          "OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'")) ==
        "shm-full");
  CHECK(hint_of(traceback("ImportError: \n\nIMPORTANT: PLEASE READ THIS\n\nOriginal error was: "
                          "libblas.so.3: cannot open "
                          "shared object file: No such file or directory\n")) == "library");
}

TEST_CASE("last error: causes that an exception names") {
  const std::string cause = traceback("OSError: libmkl_rt.so: cannot open shared object file");
  CHECK(hint_of(cause +
                "\nThe above exception was the direct cause of the following exception:\n\n" +
                traceback("RuntimeError: cannot load the extension")) == "library");
  CHECK(hint_of(cause +
                "\nDuring handling of the above exception, another exception occurred:\n\n" +
                traceback("ValueError: unknown backend")) == "");
  CHECK(
      hint_of(
          traceback("ModuleNotFoundError: No module named 'x'") +
          "E1128 12:00:00.000000 140 api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 12)\n" +
          traceback(
              "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
              "============\ntrain.py FAILED\n------------\nFailures:\n  <NO_OTHER_FAILURES>\n")) ==
      "python-module");
}

TEST_CASE("last error: what is printed while the process ends does not count") {
  CHECK(
      hint_of(traceback("ValueError: no data") +
              "[rank0]:[W1128 12:00:00.0 ProcessGroupNCCL.cpp:1250] Warning: "
              "destroy_process_group() was not called\n"
              "[E1128 12:00:00.1 TCPStore.cpp:138] recvValue failed: Connection reset by peer\n") ==
      "");
  CHECK(hint_of(traceback("ValueError: no data") +
                "Exception ignored in: <function Pool.__del__ at 0x7f>\n" +
                traceback("OSError: [Errno 24] Too many open files")) == "");
  CHECK(hint_of(traceback("MemoryError") +
                "Exception ignored in atexit callback: <function f at 0x7f>\n" +
                traceback("ValueError: closed")) == "memory-error");
  CHECK(
      hint_of("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 1, in "
              "<module>\n"
              "[rank1]:     import apex\n[rank1]: ModuleNotFoundError: No module named 'apex'\n") ==
      "python-module");
  CHECK(hint_of(
            "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1, "
            "in <module>\n"
            "  | ExceptionGroup: two (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n    |   File \"a.py\", line 2, in f\n"
            "    | ConnectionRefusedError: [Errno 111] Connection refused\n    "
            "+------------------\n") == "refused");
}

TEST_CASE("last error: of other programs") {
  CHECK(hint_of("./a.out: error while loading shared libraries: libfoo.so.1: cannot open shared "
                "object file: No such "
                "file or directory\n") == "library");
  CHECK(hint_of("libibverbs: Warning: couldn't load driver 'libmlx5.so': libmlx5.so: cannot open "
                "shared object file\n"
                "solver: fatal: no mesh in input.dat\n") == "");
  CHECK(hint_of("ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded (cannot open "
                "shared object file): "
                "ignored.\nSegmentation fault\n") == "");
  CHECK(hint_of("bind: Address already in use\nERROR: cannot start the server\n") ==
        "address-in-use");
  CHECK(hint_of("bind: Address already in use\n" + many("step", 20) + "ERROR: no data\n") == "");
  CHECK(hint_of("open: Too many open files\n" + many("step", 40)) == "");
  CHECK(hint_of("terminate called after throwing an instance of 'std::runtime_error'\n  what():  "
                "CUDA error: invalid "
                "argument\n") == "cuda-error");
  CHECK(hint_of(traceback("ModuleNotFoundError: No module named 'apex'") +
                "train.py: error: unrecognized arguments: -x\n") == "");
  CHECK(hint_of("Fatal Python error: Bus error\n\nCurrent thread 0x1 (most recent call first):\n"
                "  File \"a.py\", line 5 in read\n\nExtension modules: numpy (total: 1)\n") ==
        "bus-error");
  CHECK(
      hint_of(
          "a:1:2 [0] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n") ==
      "locked-memory");
  CHECK(last_errors("").empty());
}
