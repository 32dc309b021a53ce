// A rank that dies in the middle of a collective becomes an error on all others, soon, and the
// error names it.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "calls.h"
#include "processes.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

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

int signal_of_the_strike = 0;

// Whatever it does then.
void strike_itself_after(int milliseconds, int number) {
  signal_of_the_strike = number;
  ::signal(SIGALRM, [](int) { kill(getpid(), signal_of_the_strike); });
  itimerval timer{};
  timer.it_value.tv_usec = milliseconds * 1000;
  setitimer(ITIMER_REAL, &timer, nullptr);
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
bool can_use(const std::string& backend) {
  const auto usable = collectives::usable_backends({});
  return backend.empty() || std::count(usable.begin(), usable.end(), backend) > 0;
}

}  // namespace

TEST_CASE("a killed rank: every operation, the coordinator and another one, small and large") {
  WorldOptions options;
  options.size = 3;
  options.backends = GENERATE("", "gloo");
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

struct Strike {
  int signal;
  int victim;
  int milliseconds;  // from the third operation on
  hora_operation operation;
  std::int64_t count;
};

// All others hear of it, and which rank it was, wherever it is struck.
void expect_news_of(WorldOptions options, const Strike& strike) {
  if (!can_use(options.backends)) return;
  options.size = 3;
  options.adjust = [](collectives::Settings& settings) {
    settings.stall_warning = settings.stall_shutdown = std::chrono::seconds(1);
  };
  const auto body = [&](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {strike.count});
    for (int i = 0;; ++i) {
      if (i == 3 && rank_of(communicator) == strike.victim) {
        strike_itself_after(strike.milliseconds, strike.signal);
      }
      Call call(communicator, request_of(strike.operation, tensor));
      const hora_status status = call.wait();
      if (status == HORA_OK) continue;
      check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
      const std::string name = "rank " + std::to_string(strike.victim) + " ";
      check(call.error().find(name) != std::string::npos, "it is not named: " + call.error());
      return;
    }
  };
  const auto results = run_processes(options, body, strike.signal == SIGSTOP ? strike.victim : -1);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO(options.backends << " " << collectives::operation_name(strike.operation) << " of "
                          << strike.count << ", signal " << strike.signal << " for rank "
                          << strike.victim << " after " << strike.milliseconds << " ms; rank "
                          << rank << ": signal " << results[rank].signal << " "
                          << results[rank].text);
    if (static_cast<int>(rank) == strike.victim) {
      CHECK(results[rank].signal == SIGKILL);
    } else {
      CHECK(results[rank].exited);
      CHECK(results[rank].code == 0);
    }
  }
}

constexpr hora_operation kOperations[] = {HORA_ALLREDUCE,    HORA_ALLGATHER, HORA_BROADCAST,
                                          HORA_ALLTOALL,     HORA_BARRIER,   HORA_JOIN,
                                          HORA_REDUCESCATTER};

}  // namespace

TEST_CASE("a killed rank: in the middle of each operation") {
  WorldOptions options;
  options.backends = GENERATE("", "gloo");
  int milliseconds = 1;
  for (const hora_operation operation : kOperations) {
    milliseconds = milliseconds % 19 + 3;
    const int victim = milliseconds % 2 == 0 ? 0 : 2;
    expect_news_of(options, {SIGKILL, victim, milliseconds, operation, 999'999});
  }
}

// By then everybody has been heard of, and can be missed.
constexpr int kAcquaintance = 500;

TEST_CASE("a stopped rank: it is found while the others are in a collective with it") {
  WorldOptions options;
  expect_news_of(options, {SIGSTOP, 2, kAcquaintance, HORA_ALLREDUCE, 3'000'000});
}

// Each takes some seconds, as long as the others wait for a sign of life.
TEST_CASE("a stopped rank: each operation, each backend, rank 0 and another one", "[.long]") {
  WorldOptions options;
  const std::string over = GENERATE("shm", "gloo", "hosts");
  options.backends = over == "hosts" ? "" : over;
  if (over == "hosts") options.hosts = {"a", "a", "b"};
  int milliseconds = 1;
  for (const hora_operation operation : kOperations) {
    for (const int victim : {0, 2}) {
      for (const std::int64_t count : {3, 3'000'000}) {
        milliseconds = milliseconds % 19 + 3;
        expect_news_of(options, {SIGSTOP, victim, kAcquaintance + milliseconds, operation, count});
      }
    }
  }
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
  if (!can_use("gloo")) return;
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
