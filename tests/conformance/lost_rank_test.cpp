// SPDX-License-Identifier: Apache-2.0
// A rank that dies or is stopped in the middle of a collective becomes an error on all others,
// soon, and the error names it.
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>

#include "calls.h"
#include "processes.h"
#include "rendezvous/os/log.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

hora_request request_of(hora_operation operation, Tensor& tensor) {
  switch (operation) {
    case HORA_ALLREDUCE:
      return reduce_request("work", tensor, tensor);
    case HORA_BROADCAST:
      return broadcast_request("work", tensor, tensor, 0);
    case HORA_BARRIER:
    case HORA_JOIN:
      return bare_request(operation);
    default:
      return result_request(operation, "work", tensor);
  }
}

// Messages between the processes of a test.
struct Board {
  std::atomic<pid_t> victim{0};
  std::atomic<pid_t> other{0};
  std::atomic<int> reported{0};    // warnings
  std::atomic<double> struck{0};   // when it was, in seconds of the machine's clock
  std::atomic<double> noticed{0};  // after how many seconds the last one knew
  std::atomic<double> starved{0};  // for how many seconds a thread has waited for a CPU
  std::atomic<int> timeout{1};     // how many times the limit counts

  static Board& get() {
    static auto* const board = new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board;
    return *board;
  }
};

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

void raise_to(std::atomic<double>& greatest, double value) {
  double before = greatest;
  while (before < value && !greatest.compare_exchange_weak(before, value)) {
  }
}

// A rank that gets no CPU answers as little as one that is stopped. The kernel knows: for how long
// a thread could have run and did not, of that thread of this process that has waited most.
class ReportsStarvation {
 public:
  ReportsStarvation() = default;
  ReportsStarvation(const ReportsStarvation&) = delete;
  ReportsStarvation& operator=(const ReportsStarvation&) = delete;
  ~ReportsStarvation() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(thread.path() / "schedstat");
      double ran_ns = 0, waited_ns = 0;
      if (file >> ran_ns >> waited_ns) raise_to(Board::get().starved, waited_ns / 1e9);
    }
  }
};

int signal_of_the_strike = 0;

void strike(int) {
  Board::get().struck = now();
  kill(getpid(), signal_of_the_strike);
}

// Whatever it does then.
void strike_itself_after(int milliseconds, int number) {
  signal_of_the_strike = number;
  Board::get().victim = getpid();
  ::signal(SIGALRM, strike);
  itimerval timer{};
  timer.it_value.tv_usec = milliseconds * 1000;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

bool is_stopped(pid_t process) {
  if (process == 0) return false;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find(") T ") != std::string::npos;
}

void wait_until_stopped(const std::atomic<pid_t>& process) {
  while (!is_stopped(process)) std::this_thread::sleep_for(milliseconds(5));
}

bool names(const std::string& text, int rank) {
  return text.find("rank " + std::to_string(rank) + " ") != std::string::npos;
}

// What the operation was ended by; on the last one to know, it is when that was.
void expect_report_of(Call& call, int victim, int of) {
  const hora_status status = call.wait();
  check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
  for (int rank = 0; rank < of; ++rank) {
    check(names(call.error(), rank) == (rank == victim), "who is named: " + call.error());
  }
  raise_to(Board::get().noticed, now() - Board::get().struck);
}

// Works until the world ends, which must be because of rank `victim`.
void work_until_the_end(Communicator& communicator, hora_operation operation, std::int64_t count,
                        int victim, int death_after) {
  Tensor tensor(HORA_FLOAT32, {count});
  for (int i = 0;; ++i) {
    if (rank_of(communicator) == victim && i == death_after) kill(getpid(), SIGKILL);
    Call call(communicator, request_of(operation, tensor));
    const hora_status status = call.wait();
    if (status == HORA_OK) continue;
    check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
    const std::string name = "rank " + std::to_string(victim) + " (";
    check(call.error().find(name) != std::string::npos,
          "the dead rank is not named: " + call.error());
    return;
  }
}

void expect_survivors_to_know(const WorldOptions& options, hora_operation operation,
                              std::int64_t count, int victim, int death_after) {
  const auto results = run_processes(options, [&](Communicator& communicator) {
    work_until_the_end(communicator, operation, count, victim, death_after);
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": " << results[rank].text);
    if (static_cast<int>(rank) == victim) {
      CHECK(results[rank].signal == SIGKILL);
    } else {
      CHECK(results[rank].exited);
      CHECK(results[rank].code == 0);
      CHECK(results[rank].seconds < 30);  // a hang; otherwise it takes milliseconds
    }
  }
}

// Backends of the machine's own libraries are there or not; "" is whatever is best.
bool can_use(const std::string& backends) {
  const auto usable = collectives::usable_backends({});
  const std::string first = backends.substr(0, backends.find(','));
  return first.empty() || std::count(usable.begin(), usable.end(), first) > 0;
}

}  // namespace

TEST_CASE("a killed rank: every operation, the coordinator and another one, small and large") {
  WorldOptions options;
  options.size = 3;
  options.backends = GENERATE("", "tcp");
  if (!can_use(options.backends)) return;
  for (hora_operation operation : {HORA_ALLREDUCE, HORA_ALLGATHER, HORA_BROADCAST, HORA_ALLTOALL,
                                   HORA_REDUCESCATTER, HORA_BARRIER}) {
    for (int victim : {0, 2}) {
      for (std::int64_t count : {3, 3'000'000}) {
        DYNAMIC_SECTION(options.backends << " " << collectives::operation_name(operation) << " of "
                                         << count << ", rank " << victim << " dies") {
          expect_survivors_to_know(options, operation, count, victim, 3);
        }
      }
    }
  }
}

namespace {

constexpr int kWorld = 3;

// Long enough for ranks that share their cores with others to come in time; otherwise the test is
// repeated with more time.
WorldOptions with_limit(WorldOptions options, int limit = 3) {
  options.size = std::max(options.size, kWorld);
  options.adjust = [limit](collectives::Settings& settings) {
    settings.stall_warning = settings.stall_shutdown = seconds(limit * Board::get().timeout);
  };
  return options;
}

// From here on, a rank may have missed a limit of seconds because of what else runs.
constexpr double kStarvedS = 0.5;
constexpr int kMostTimeout = 4;

bool all_but_one_ended(const std::vector<ProcessResult>& results, int victim) {
  for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
    if (rank != victim && (!results[rank].exited || results[rank].code != 0)) return false;
  }
  return true;
}

// Runs it; all but the victim have to come to their end. Answers after how many seconds the last
// one knew.
double expect_to_survive(const WorldOptions& options, const RankBody& body, int number,
                         int victim) {
  Board& board = Board::get();
  const RankBody watched_body = [&body](Communicator& communicator) {
    const ReportsStarvation at_the_end;
    body(communicator);
  };
  std::vector<ProcessResult> results;
  for (board.timeout = 1;; board.timeout = 2 * board.timeout) {
    board.victim = board.other = 0;
    board.noticed = board.starved = 0;
    results = run_processes(options, watched_body, number == SIGSTOP ? victim : -1);
    if (all_but_one_ended(results, victim) || board.starved < kStarvedS) break;
    if (board.timeout == kMostTimeout) break;
  }
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": signal " << results[rank].signal << " " << results[rank].text);
    if (static_cast<int>(rank) == victim) {
      CHECK(results[rank].signal == SIGKILL);
    } else {
      CHECK(results[rank].exited);
      CHECK(results[rank].code == 0);
    }
  }
  return Board::get().noticed;
}

struct Strike {
  int signal;
  int victim;
  int milliseconds;  // from the third operation on
  hora_operation operation;
  std::int64_t count;
};

// All others learn of it, and which rank it was, wherever it is struck.
double expect_updates_of(const WorldOptions& options, const Strike& strike, int limit = 3) {
  if (!can_use(options.backends)) return 0;
  INFO(options.backends << " " << collectives::operation_name(strike.operation) << " of "
                        << strike.count << ", signal " << strike.signal << " for rank "
                        << strike.victim << " after " << strike.milliseconds << " ms");
  const auto body = [&](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {strike.count});
    for (int i = 0;; ++i) {
      if (i == 3 && rank_of(communicator) == strike.victim) {
        strike_itself_after(strike.milliseconds, strike.signal);
      }
      Call call(communicator, request_of(strike.operation, tensor));
      if (call.wait() != HORA_OK) return expect_report_of(call, strike.victim, kWorld);
    }
  };
  return expect_to_survive(with_limit(options, limit), body, strike.signal, strike.victim);
}

// The machine's own; on a GPU, or its double, NCCL.
std::vector<WorldOptions> all_places() {
  std::vector<WorldOptions> places(3);
  places[0].backends = test_device() == HORA_CPU_DEVICE ? "shm" : "nccl,shm";
  places[1].backends = "tcp";
  places[2].hosts = {"a", "a", "b"};
  if (test_device() != HORA_CPU_DEVICE) places.resize(1);
  return places;
}

constexpr hora_operation kOperations[] = {HORA_ALLREDUCE,    HORA_ALLGATHER, HORA_BROADCAST,
                                          HORA_ALLTOALL,     HORA_BARRIER,   HORA_JOIN,
                                          HORA_REDUCESCATTER};

}  // namespace

TEST_CASE("a killed rank: in the middle of each operation") {
  int milliseconds = 1;
  for (const WorldOptions& options : all_places()) {
    for (const hora_operation operation : kOperations) {
      milliseconds = milliseconds % 19 + 3;
      const int victim = milliseconds % 2 == 0 ? 0 : 2;
      expect_updates_of(options, {SIGKILL, victim, milliseconds, operation, 999'999});
    }
  }
}

// By then all have given a sign, and can be missed.
constexpr int kAcquaintance = 500;

TEST_CASE("a stopped rank: it is found while the others are in a collective with it") {
  expect_updates_of(all_places()[0], {SIGSTOP, 2, kAcquaintance, HORA_ALLREDUCE, 3'000'000});
}

// Without any limit: it is reported, and once it goes on, so does the job.
TEST_CASE("a stopped rank: a warning names it and what it was in, and nothing else happens") {
  const int victim = GENERATE(0, 2);
  WorldOptions options = all_places()[0];
  options.size = kWorld;
  options.adjust = [](collectives::Settings& settings) { settings.stall_warning = seconds(2); };
  static std::atomic<int>& reported = Board::get().reported;
  reported = 0;
  Board::get().victim = 0;
  const auto body = [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    os::set_log_sink([victim](const std::string& line) {
      // On a machine that has no time for them others may not answer either, nor this one before it
      // is struck: kill(0, SIGSTOP) would stop the whole process group.
      const std::size_t at = line.find("rank " + std::to_string(victim) + " ");
      const pid_t stopped = Board::get().victim;
      if (at == std::string::npos || reported > 0 || stopped == 0) return;
      const std::string reports_of = line.substr(at, line.find('\n', at) - at);
      kill(stopped, SIGCONT);
      if (reports_of.find("in the middle of allreduce 'work'") != std::string::npos) {
        ++reported;
      } else {  // it was struck between two operations: again, a little later
        std::this_thread::sleep_for(milliseconds(20));
        kill(stopped, SIGSTOP);
      }
    });
    Tensor in(HORA_FLOAT32, {16 << 20}), out(HORA_FLOAT32, {16 << 20});
    in.set(in.count() - 1, 1);
    for (int i = 0; out.get(0) <= 0; ++i) {
      if (i == 3 && rank == victim) strike_itself_after(kAcquaintance, SIGSTOP);
      in.set(0, reported);
      Call call(communicator, reduce_request("work", in, out));
      check(call.wait() == HORA_OK, call.error());
      check(out.get(in.count() - 1) == kWorld, "a wrong sum");
    }
    os::set_log_sink({});
  };
  const auto results = run_processes(options, body);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": signal " << results[rank].signal << " " << results[rank].text);
    CHECK(results[rank].exited);
    CHECK(results[rank].code == 0);
  }
  CHECK(reported > 0);
}

// Each takes some seconds, as long as the others wait for a sign of life.
TEST_CASE("a lost rank: each operation, each backend, rank 0 and another one", "[.long]") {
  int milliseconds = 1;
  for (const WorldOptions& options : all_places()) {
    for (const int number : {SIGKILL, SIGSTOP}) {
      double longest = 0;
      for (const hora_operation operation : kOperations) {
        for (const int victim : {0, 2}) {
          for (const std::int64_t count : {3, 3'000'000}) {
            milliseconds = milliseconds % 19 + 3;
            const Strike strike{number, victim, kAcquaintance + milliseconds, operation, count};
            longest = std::max(longest, expect_updates_of(options, strike, 2));
          }
        }
      }
      std::printf("%s: when a rank was %s, the last of the others knew after %.2f s at most\n",
                  options.backends.empty() ? "several hosts" : options.backends.c_str(),
                  number == SIGKILL ? "killed" : "stopped", longest);
    }
  }
}

TEST_CASE("a stopped rank: those that have joined miss it, and none that computes", "[.long]") {
  if (test_device() != HORA_CPU_DEVICE) return;
  const int victim = 2;
  const auto body = [&](Communicator& communicator) {
    // Longer than a silence may last.
    const auto silence = milliseconds(5500) * Board::get().timeout.load();
    if (rank_of(communicator) == victim) std::this_thread::sleep_for(silence);
    Call(communicator, bare_request(HORA_JOIN)).finish();
    if (rank_of(communicator) == victim) strike_itself_after(1, SIGSTOP), pause();
    Call call(communicator, bare_request(HORA_JOIN));
    expect_report_of(call, victim, kWorld);
  };
  expect_to_survive(with_limit({}), body, SIGSTOP, victim);
}

TEST_CASE("a stopped rank: in a set without rank 0, which alone is named", "[.long]") {
  if (test_device() != HORA_CPU_DEVICE) return;
  WorldOptions options;
  options.size = 4;
  options.process_sets = {{1, 2, 3}, {0}};
  const int victim = 2;
  const auto body = [&](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {1'000'000});
    hora_request request = reduce_request("work", tensor, tensor);
    request.process_set = rank_of(communicator) == 0 ? 2 : 1;
    for (int i = 0;; ++i) {
      if (i == 3 && rank_of(communicator) == victim) strike_itself_after(kAcquaintance, SIGSTOP);
      if (rank_of(communicator) == 0) std::this_thread::sleep_for(milliseconds(10));
      Call call(communicator, request);
      if (call.wait() != HORA_OK) return expect_report_of(call, victim, options.size);
    }
  };
  expect_to_survive(with_limit(options), body, SIGSTOP, victim);
}

// It has posted, and reported that to rank 0, and so have all others: no rank is missing by that.
TEST_CASE("a stopped rank: one that leads its host, while it waits in the fast path", "[.long]") {
  if (test_device() != HORA_CPU_DEVICE) return;
  WorldOptions options = with_limit({});
  options.hosts = {"a", "b", "b"};
  const int victim = 1;
  const auto body = [&](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {10});
    const hora_request request = reduce_request("work", tensor, tensor);
    for (int i = 0; i < 20; ++i) Call(communicator, request).finish();
    std::this_thread::sleep_for(milliseconds(kAcquaintance));
    Board& board = Board::get();
    if (rank_of(communicator) == victim) board.victim = getpid();
    if (rank_of(communicator) == 2) kill(board.other = getpid(), SIGSTOP);
    if (rank_of(communicator) == 0) wait_until_stopped(board.other);
    Call call(communicator, request);
    if (rank_of(communicator) == 0) {
      std::this_thread::sleep_for(milliseconds(400));  // the time in which the victim reports
      board.struck = now();
      kill(board.victim, SIGSTOP);
      wait_until_stopped(board.victim);
      kill(board.other, SIGCONT);  // it posts last
    }
    expect_report_of(call, victim, kWorld);
  };
  expect_to_survive(options, body, SIGSTOP, victim);
}

TEST_CASE("a stopped rank: one that does not read its messages any more", "[.long]") {
  if (test_device() != HORA_CPU_DEVICE) return;
  const int victim = 1;
  const auto body = [&](Communicator& communicator) {
    if (rank_of(communicator) == victim) strike_itself_after(kAcquaintance, SIGSTOP);
    if (rank_of(communicator) != victim) wait_until_stopped(Board::get().victim);
    Tensor tensor(HORA_FLOAT32, {1});
    std::vector<Call> calls;  // their responses are more than a ring holds
    for (int i = 0; i < 1500; ++i) {
      calls.emplace_back(communicator, reduce_request(std::to_string(i).c_str(), tensor, tensor));
    }
    expect_report_of(calls.back(), victim, kWorld);
  };
  expect_to_survive(with_limit({}, 10), body, SIGSTOP, victim);
}

TEST_CASE("a killed rank: before the first operation, and while the others wait for it") {
  WorldOptions options;
  options.size = 4;
  for (int victim : {0, 1, 3}) expect_survivors_to_know(options, HORA_ALLREDUCE, 10, victim, 0);
  expect_survivors_to_know(options, HORA_ALLREDUCE, 10, 3, 100);
}

TEST_CASE("a killed rank: one that leads its host, and one that does not") {
  WorldOptions options;
  options.size = 5;
  options.hosts = {"a", "a", "b", "b", "c"};
  for (hora_operation operation : {HORA_ALLREDUCE, HORA_BARRIER}) {
    for (int victim : {0, 1, 2, 3, 4}) expect_survivors_to_know(options, operation, 10, victim, 50);
  }
}

TEST_CASE("processes: the right sums, and a quiet end") {
  WorldOptions options;
  options.size = 4;
  const auto results = run_processes(options, [](Communicator& communicator) {
    for (int i = 0; i < 50; ++i) {
      Tensor tensor(HORA_FLOAT64, {1000});
      fill(tensor, rank_of(communicator));
      Call(communicator, reduce_request("sum", tensor, tensor)).finish();
      for (std::int64_t k = 0; k < 1000; ++k) {
        check(tensor.get(k) == reduced(HORA_FLOAT64, HORA_SUM, {0, 1, 2, 3}, k), "a wrong sum");
      }
    }
  });
  for (const ProcessResult& result : results) {
    CHECK(result.text == "");
    CHECK(result.code == 0);
  }
}
