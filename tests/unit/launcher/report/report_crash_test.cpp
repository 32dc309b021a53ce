// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"
#include "launcher/report/hang_report_text.h"
#include "launcher/report/job_report.h"
#include "launcher/report/resource_usage.h"
#include "launcher/report/secrets.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

const std::vector<HostPlan> kHosts = [] {
  std::vector<HostPlan> hosts(2);
  hosts[0].host.name = "a";
  hosts[1].host.name = "b";
  for (int rank = 0; rank < 4; ++rank)
    hosts[rank / 2].slots.push_back({rank, rank % 2, rank / 2, 2});
  return hosts;
}();

RankStanding standing(int rank, const std::string& stacks, bool leader = true) {
  RankStanding out;
  out.host = rank / 2;
  out.process.rank = rank;
  out.process.pid = 100 + rank;
  out.process.leader = leader;
  out.process.program = "python3";
  out.process.state = "S futex_wait_queue";
  out.process.cpu_ms = 1500;
  out.process.threads = 3;
  out.process.stacks = stacks;
  return out;
}

std::string stack(const std::string& id, const std::string& function) {
  return "Current thread 0x" + id + " (most recent call first):\n  File \"t.py\", line 3 in " +
         function + "\n";
}

}  // namespace

TEST_CASE("equal stacks are printed once, the one of a single rank first") {
  const std::string text =
      hang_report_text("SIGQUIT",
                       {standing(3, stack("a1", "wait")), standing(0, stack("b2", "wait")),
                        standing(1, stack("c3", "load")), standing(2, stack("d4", "wait")),
                        standing(2, stack("e5", "worker"), false)},
                       {}, kHosts);
  CHECK(
      text ==
      "where the ranks stand (SIGQUIT):\n"
      "  rank   host             pid      CPU        threads  program          state\n"
      "  0      a                100      1.50       3        python3          S futex_wait_queue\n"
      "  1      a                101      1.50       3        python3          S futex_wait_queue\n"
      "  2      b                102      1.50       3        python3          S futex_wait_queue\n"
      "  3      b                103      1.50       3        python3          S futex_wait_queue\n"
      "  rank 1:\n"
      "    Current thread (most recent call first):\n"
      "      File \"t.py\", line 3 in load\n"
      "  ranks 0,2,3:\n"
      "    Current thread (most recent call first):\n"
      "      File \"t.py\", line 3 in wait\n"
      "  1 child process of rank 2:\n"
      "    Current thread (most recent call first):\n"
      "      File \"t.py\", line 3 in worker\n");
}

TEST_CASE("child processes with equal stacks are printed with the ranks that they belong to") {
  const std::string text = hang_report_text(
      "SIGQUIT",
      {standing(3, stack("a1", "worker"), false), standing(0, stack("b2", "wait")),
       standing(3, stack("c3", "worker"), false), standing(1, stack("d4", "worker"), false)},
      {}, kHosts);
  CHECK(text.find("  3 child processes of ranks 1,3:\n") != std::string::npos);
}

TEST_CASE("the hang report fits the terminal") {
  const std::string stacks =
      "Thread python3 (most recent call first):\n  at syscall (libc.so.6)\n"
      "  File \"/home/user/projects/training/experiments/train.py\", line 1234 in "
      "train_one_epoch\n";
  const std::vector<RankStanding> ranks = {standing(0, stacks), standing(1, stacks),
                                           standing(3, "")};
  for (const std::size_t width : {40u, 41u, 60u, 72u, 80u, 132u, 200u}) {
    const std::string text = hang_report_text("--timeout", ranks, {}, kHosts, width);
    CAPTURE(width, text);
    for (const std::string_view line : hora::split("horarun: " + text, '\n')) {
      CHECK(line.size() <= width);
    }
    CHECK(text.find("train.py\", line") != std::string::npos);
    CHECK(text.find("  rank") != std::string::npos);
    CHECK((width < 60 || text.find("pid") != std::string::npos));
  }
}

TEST_CASE("our own frames and threads are a line each") {
  const std::string stacks =
      "Thread python3 (most recent call first):\n"
      "  at syscall (libc.so.6)\n"
      "  at hora::wait() (libhora.so)\n"
      "  at ffi_call (libffi.so.8)\n"
      "  at _ctypes.cpython-311-x86_64-linux-gnu.so+0x8e12\n"
      "  File \"/cache/bundle/python/hora/operations.py\", line 7 in synchronize\n"
      "  File \"/cache/bundle/python/hora/numpy.py\", line 7 in allreduce\n"
      "  File \"/home/me/hora/train.py\", line 3 in <module>\n"
      "Thread loader (most recent call first):\n"
      "  at read (libc.so.6)\n"
      "Thread hora-runtime (most recent call first):\n"
      "  at epoll_wait (libc.so.6)\n"
      "  at hora::loop() (libhora.so)\n"
      "Thread hora-watchdog (most recent call first):\n"
      "  at poll (libc.so.6)\n";
  CHECK(without_own_frames(stacks) ==
        "Thread python3 (most recent call first):\n"
        "  ... 6 frames of Hora, from allreduce()\n"
        "  File \"/home/me/hora/train.py\", line 3 in <module>\n"
        "Thread loader (most recent call first):\n"
        "  at read (libc.so.6)\n"
        "Hora's own threads: hora-runtime, hora-watchdog\n");
  CHECK(hang_report_text("x", {standing(0, stacks)}, {}, kHosts, 0, true).find("libffi") !=
        std::string::npos);
}

TEST_CASE("hosts and ranks that say nothing are named") {
  const std::string text =
      hang_report_text("stall", {standing(0, ""), standing(1, "")}, {1}, kHosts);
  CHECK(text.find("host b did not answer") != std::string::npos);
  CHECK(text.find("no stacks from ranks 0,1") != std::string::npos);
}

TEST_CASE("numbers in ranges") {
  CHECK(number_ranges({}) == "");
  CHECK(number_ranges({4}) == "4");
  CHECK(number_ranges({1, 2}) == "1,2");
  CHECK(number_ranges({0, 1, 2, 3, 7, 9, 10, 11}) == "0-3,7,9-11");
}

TEST_CASE("ranks that ended alike are one line") {
  std::map<int, RankExit> exits;
  for (int rank = 0; rank < 4; ++rank) {
    exits[rank].rank = rank;
    exits[rank].exit_code = rank == 3 ? 7 : 0;
  }
  exits[2].signal = 15;
  exits[2].terminated_by_us = true;
  CHECK(exit_table(exits) ==
        "  exit code 0: ranks 0,1\n  SIGTERM, ended by us: rank 2\n  exit code 7: rank 3\n");
  const std::string bill = resource_usage_text(exits, kHosts);
  CHECK(bill.find("peak memory") != std::string::npos);
  CHECK(bill.find("  3      b ") != std::string::npos);
}

TEST_CASE("the rank that waited less than the others is the late one") {
  using namespace std::chrono_literals;
  std::map<int, RankExit> exits;
  for (int rank = 0; rank < 4; ++rank) {
    exits[rank].rank = rank;
    exits[rank].counters = {.uses_runtime = true, .collectives = 90, .waited_us = 4'600'000};
  }
  exits[1].counters.waited_us = 4'550'000;  // half a percent
  exits[2].counters.waited_us = 0;
  const auto delays = rank_delays(exits, kHosts, 10s);
  REQUIRE(delays.size() == 1);
  CHECK(delays[0].rank == 2);
  CHECK(delays[0].late_ms == 4'600);
  CHECK(delays[0].share == 0.46);
  CHECK(delay_text(delays[0]) == "rank 2 on b: the others waited 4.6 s for it, 46% of the time");
  // The worst first; a rank without the runtime waits for none, and none for it.
  exits[0].counters.waited_us = 2'000'000;
  exits[2].counters.uses_runtime = false;
  exits[3].counters.waited_us = 1'000'000;
  const auto others = rank_delays(exits, kHosts, 10s);
  REQUIRE(others.size() == 2);
  CHECK(others[0].rank == 3);
  CHECK(others[1].rank == 0);
}

TEST_CASE("a long name of a host keeps its row whole, and is cut between characters") {
  std::string name;
  for (int i = 0; i < 100; ++i) name += "\xc3\xbc";
  std::map<int, RankExit> exits;
  exits[0].exit_code = 3;
  exits[0].user_time_us = 1'500'000;
  HostPlan host;
  host.host.name = name;
  host.slots = {Slot{}};
  CHECK(resource_usage_text(exits, {host})
            .find("\n  0      " + name.substr(0, 2 * 61) +
                  "...  0.0 MiB      1.50 s      0.00 s      exit "
                  "code 3\n") != std::string::npos);
}

TEST_CASE("hints: the narrow pattern wins, every row says what it means and what to do") {
  for (const StderrHint& hint : stderr_hints()) {
    INFO(hint.id);
    REQUIRE(find_stderr_hint(hint.pattern) != nullptr);
    CHECK_FALSE(hint.meaning.empty());
    CHECK_FALSE(hint.fix.empty());
  }
  CHECK(find_stderr_hint("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried")->id ==
        "cuda-memory");
  CHECK(find_stderr_hint("x.so: undefined symbol: ncclCommResume")->id == "nccl-symbol");
  CHECK(find_stderr_hint("x.so: undefined symbol: foo")->id == "symbol");
  CHECK(find_stderr_hint("InitError: joining the job: timed out waiting for rank 3 to start "
                         "(HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit)")
            ->id == "init-waits");
  CHECK(
      find_stderr_hint("joining the job: connecting to rank 0 at a:1: receiving: timed out")->id ==
      "init-of-others");
  CHECK(find_stderr_hint("./train.py: 3: import: not found")->id == "python-by-sh");
  CHECK(find_stderr_hint("HorovodInternalError: rank 1 (node2) has shut down")->id == "left-early");
  CHECK(find_stderr_hint("Traceback (most recent call last):\n"
                         "  File \"train.py\", line 1, in <module>\n"
                         "ImportError: Hora's runtime, libhora.so, could not be loaded:\n"
                         "  libhora.so.0: libhora.so.0: cannot open shared object file: No such "
                         "file or directory\n"
                         "Start the program with horarun, which brings it along, or set "
                         "HORA_LIBRARY to its path.\n")
            ->id == "runtime");
  CHECK(find_stderr_hint("all is well") == nullptr);
}

TEST_CASE("secrets are blanked") {
  using Words = std::vector<std::string>;
  CHECK(without_secrets({"python", "t.py", "--api-key=x", "--token", "abc", "--lr", "1"}) ==
        Words{"python", "t.py", "--api-key=***", "--token", "***", "--lr", "1"});
  CHECK(without_secrets({"WANDB_API_KEY=x", "run"}) == Words{"WANDB_API_KEY=***", "run"});
}
