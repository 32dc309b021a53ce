// SPDX-License-Identifier: Apache-2.0
// A failure of one rank ends the job on all of them, soon, with the same reason: that rank, and its
// own message. What fails, and when, replaces allocations and system calls.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <map>
#include <new>
#include <thread>

#include "calls.h"
#include "processes.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;
using std::chrono::milliseconds;

namespace {

// Of this process: allocations of this many bytes fail. But first, if there is something: it is
// notified there, which becomes 1, and waits until it is more.
std::atomic<std::size_t> refused_from{SIZE_MAX};
std::atomic<std::atomic<int>*> refusing{nullptr};

// Of this process: the thread that asks for this many bytes is refused one allocation, that many
// later.
constexpr std::size_t kRingBuffers = 250'000;  // for two of three parts of the ring's 400,000 bytes
std::atomic<int> refused_later{0};
thread_local int until_refused = 0;

bool refuses(std::size_t size) {
  if (until_refused > 0 && --until_refused == 0) return true;
  if (size >= kRingBuffers && refused_later > 0) until_refused = refused_later.exchange(0);
  if (size < refused_from) return false;
  if (std::atomic<int>* const stage = refusing.exchange(nullptr)) {
    *stage = 1;
    while (*stage == 1) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(300));  // for its consequences
  }
  return true;
}

// Of this process: it cannot wait for connections any more.
std::atomic<bool> refuses_to_listen{false};

// Of this process: the signal that it gets when it makes shared memory.
std::atomic<int> struck_by{0};

// Of this process: how often its first thread has sent something, and after which time it dies. A
// tree node's thread sends more or less often, by what it has to pass on at a time.
std::atomic<int> sent{0};
std::atomic<int> dies_after{INT_MAX};

ssize_t count_what_is_sent(ssize_t bytes) {
  if (gettid() == getpid() && ++sent == dies_after) kill(getpid(), SIGKILL);
  return bytes;
}

}  // namespace

extern "C" ssize_t send(int socket, const void* data, std::size_t bytes, int flags) {
  return count_what_is_sent(syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0));
}

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  return count_what_is_sent(syscall(SYS_sendmsg, socket, message, flags));
}

extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  if (const int signal = struck_by.exchange(0)) kill(getpid(), signal);
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}

extern "C" int listen(int socket, int backlog) noexcept {
  if (!refuses_to_listen) return static_cast<int>(syscall(SYS_listen, socket, backlog));
  errno = EMFILE;
  return -1;
}

void* operator new(std::size_t size) {
  void* const memory = refuses(size) ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return refuses(size) ? nullptr : std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr int kWorld = 4;
constexpr int kVictim = 1;

// The calls of all ranks end like this.
void expect_end(Call& call, const std::vector<std::string>& parts) {
  const hora_status status = call.wait();
  check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
  for (const std::string& part : parts) {
    check(call.error().find(part) != std::string::npos, call.error() + " -- lacks " + part);
  }
}

void expect_all_to_know(const WorldOptions& options, const RankBody& body) {
  const auto results = run_processes(options, body);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": signal " << results[rank].signal << " " << results[rank].text);
    CHECK(results[rank].exited);
    CHECK(results[rank].code == 0);
    CHECK(results[rank].seconds < 30);  // a hang; otherwise it takes a second or two
  }
}

bool has_gloo() {
  const auto usable = collectives::usable_backends({});
  return std::count(usable.begin(), usable.end(), "gloo") > 0;
}

std::vector<WorldOptions> all_places() {
  std::vector<WorldOptions> places(has_gloo() ? 4 : 3);
  places[0].backends = "shm";
  places[1].backends = "tcp";
  places[2].hosts = {"a", "a", "b", "b"};
  if (has_gloo()) places[3].backends = "gloo";
  for (WorldOptions& options : places) options.size = kWorld;
  return places;
}

}  // namespace

TEST_CASE("first cause: no memory for adasum's copies") {
  for (const WorldOptions& options : all_places()) {
    INFO(options.backends);
    expect_all_to_know(options, [](Communicator& communicator) {
      Tensor tensor(HORA_FLOAT32, {1'000'000});
      Call(communicator, reduce_request("warm-up", tensor, tensor, HORA_ADASUM)).finish();
      if (rank_of(communicator) == kVictim) refused_from = 1'500'000;
      Call call(communicator, reduce_request("work", tensor, tensor, HORA_ADASUM));
      expect_end(call, {"rank 1 (", "allreduce 'work'", "memory"});
    });
  }
}

TEST_CASE("first cause: no memory to pack tensors") {
  for (const WorldOptions& options : all_places()) {
    INFO(options.backends);
    if (options.backends != "gloo" && options.backends != "tcp") continue;
    expect_all_to_know(options, [](Communicator& communicator) {
      Tensor warm(HORA_FLOAT32, {1});
      Call(communicator, reduce_request("warm-up", warm, warm)).finish();
      Tensor a(HORA_FLOAT32, {1'000'000}), b(HORA_FLOAT32, {1'000'000});
      if (rank_of(communicator) == kVictim) refused_from = 1'500'000;
      Call call(communicator, {reduce_request("a", a, a), reduce_request("b", b, b)});
      expect_end(call, {"rank 1 (", "allreduce 'a'", "memory"});
    });
  }
}

// What a rank that fails has given to Gloo by then, it takes back, and says so at once.
TEST_CASE("first cause: no memory in the middle of a ring of transfers") {
  if (!has_gloo()) return;
  WorldOptions options;
  options.size = 3;
  options.backends = "gloo";
  expect_all_to_know(options, [](Communicator& communicator) {
    constexpr std::int64_t kCount = 100'000;
    Tensor tensor(HORA_FLOAT32, {kCount});
    const int rank = rank_of(communicator);
    fill(tensor, rank);
    Call(communicator, bare_request(HORA_BARRIER)).finish();
    if (rank == kVictim) refused_later = 24;
    Call call(communicator, reduce_request("work", tensor, tensor));
    const hora_status status = call.wait();
    if (status == HORA_OK) {
      check(rank != kVictim, "nothing was refused");
      for (std::int64_t k = 0; k < kCount; ++k) {
        check(tensor.get(k) == reduced(HORA_FLOAT32, HORA_SUM, {0, 1, 2}, k), "a wrong sum");
      }
      return;
    }
    for (std::int64_t k = 0; k < kCount; ++k) tensor.set(k, -1);
    expect_end(call, {"rank 1 (", "allreduce 'work'", "memory"});
    if (rank == kVictim) std::this_thread::sleep_for(milliseconds(100));  // for what is under way
    for (std::int64_t k = 0; k < kCount; ++k) check(tensor.get(k) == -1, "it was written to");
  });
}

// The others wait for its addresses by then.
TEST_CASE("first cause: a backend that cannot be set up on one rank is left out, and all go on") {
  WorldOptions options;
  options.size = kWorld;
  options.hosts = {"a", "a", "b", "b"};
  options.backends = "tcp,shm";
  options.adjust = [](collectives::Settings& settings) {
    refuses_to_listen = settings.rank == kVictim;
  };
  expect_all_to_know(options, [](Communicator& communicator) {
    SharedCounter done(communicator);
    const auto left_out = communicator.engine().backends().left_out();
    check(left_out.size() == 1 && left_out[0].first == "tcp", "it is not left out");
    check(left_out[0].second.starts_with("rank 1: "), "why not tcp: " + left_out[0].second);
    Tensor tensor(HORA_FLOAT32, {1'000'000});
    Call call(communicator, reduce_request("no backend", tensor, tensor));
    check(call.wait() == HORA_UNSUPPORTED, "all: " + call.error());
    std::int32_t set = 0;
    check(communicator.add_process_set({2, 3}, &set).status == HORA_OK, "no set");
    if (rank_of(communicator) >= 2) {
      hora_request request = reduce_request("on one host", tensor, tensor);
      request.process_set = set;
      Call(communicator, request).finish();
      ++done.value();
    }
    // A rank that leaves ends the world for all.
    while (done.value() < 2) std::this_thread::sleep_for(milliseconds(1));
  });
}

// Its pages of shared memory run out: all know that, by their vote on the links between hosts.
TEST_CASE("first cause: no room for the shared memory of one host when all join") {
  WorldOptions options;
  options.size = kWorld;
  options.hosts = {"a", "a", "b", "b"};
  options.backends = "tcp,shm";
  options.adjust = [](collectives::Settings& settings) {
    if (settings.rank != 2) return;
    signal(SIGXFSZ, SIG_IGN);
    const rlimit little{1 << 20, 1 << 20};
    check(setrlimit(RLIMIT_FSIZE, &little) == 0, "setrlimit");
  };
  expect_all_to_know(options, [](Communicator& communicator) {
    const auto left_out = communicator.engine().backends().left_out();
    check(left_out.size() == 1 && left_out[0].first == "hierarchical", "it is not left out");
    check(left_out[0].second.starts_with("rank 2: "), "why not: " + left_out[0].second);
    Tensor tensor(HORA_FLOAT32, {1'000'000});
    fill(tensor, rank_of(communicator));
    Call(communicator, reduce_request("by the links alone", tensor, tensor)).finish();
    check(tensor.get(3) == reduced(HORA_FLOAT32, HORA_SUM, {0, 1, 2, 3}, 3), "a wrong sum");
  });
}

TEST_CASE("first cause: a rank fails while rank 0, that has no part in it, shuts down") {
  WorldOptions options;
  options.size = 3;
  options.process_sets = {{1, 2}};
  expect_all_to_know(options, [](Communicator& communicator) {
    SharedCounter stage(communicator);
    Tensor tensor(HORA_FLOAT32, {1'000'000});
    Call(communicator, reduce_request("warm-up", tensor, tensor)).finish();
    if (rank_of(communicator) == 0) {
      while (stage.value() == 0) std::this_thread::sleep_for(milliseconds(1));
      stage.value() = 2;
      return communicator.leave();
    }
    if (rank_of(communicator) == kVictim) {
      refusing = &stage.value();
      refused_from = 1'500'000;
    }
    hora_request request = reduce_request("work", tensor, tensor, HORA_ADASUM);
    request.process_set = 1;
    Call call(communicator, request);
    expect_end(call, {"rank 1 (", "allreduce 'work'", "memory"});
  });
}

// After any of the messages by which it meets the ranks of its host, connects to the others, makes
// backends with them and votes on these.
TEST_CASE("first cause: a rank that dies while all join") {
  WorldOptions options;
  options.backends = GENERATE("", "gloo");
  if (options.backends == "gloo" && !has_gloo()) return;
  options.size = 3;
  options.hosts = {"a", "b", "b"};
  auto* const sent_to_join = new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>{0};
  expect_all_to_know(options, [&](Communicator& communicator) {
    if (rank_of(communicator) == kVictim) *sent_to_join = sent.load();
    Call(communicator, bare_request(HORA_BARRIER)).finish();
  });
  constexpr int kToMeet = 2;  // rank 0 waits for those that have not come
  for (int message = *sent_to_join - 1; message >= kToMeet; --message) {
    INFO(options.backends << ": after message " << message << " of " << *sent_to_join);
    options.adjust = [&](collectives::Settings& settings) {
      if (settings.rank == kVictim) dies_after = message;
    };
    const auto results = run_processes(options, [](Communicator&) {});
    CHECK(results[kVictim].signal == SIGKILL);
    for (const std::size_t rank : {0u, 2u}) {
      INFO("rank " << rank << ": signal " << results[rank].signal << " " << results[rank].text);
      CHECK(results[rank].text.find("rank 1 (b) is gone") != std::string::npos);
      CHECK(results[rank].seconds < 20);  // a hang: connecting may take 30
    }
  }
}

namespace {

// It makes the memory of a new set, for which another member waits, and for both the other ranks.
void lose_a_rank_while_all_add_a_set(int victim, int signal, std::chrono::seconds limit) {
  WorldOptions options;
  options.size = kWorld;
  options.adjust = [&](collectives::Settings& settings) {
    if (limit == std::chrono::seconds(0)) {
      if (signal == SIGSTOP) settings.start_timeout = std::chrono::seconds(5);
      return;
    }
    settings.stall_warning = limit;
    settings.stall_shutdown = limit;
  };
  const auto results = run_processes(
      options,
      [&](Communicator& communicator) {
        Call(communicator, bare_request(HORA_BARRIER)).finish();
        if (rank_of(communicator) == victim) struck_by = signal;
        std::int32_t set = 0;
        const auto outcome = communicator.add_process_set({victim, victim + 1}, &set);
        check(outcome.status == HORA_ABORTED, "it was added");
        const std::string lost = "rank " + std::to_string(victim) + " (";
        check(outcome.text.find(lost) != std::string::npos, outcome.text);
        for (int other = 0; other < kWorld; ++other) {
          const std::string its = "rank " + std::to_string(other) + " (";
          check(other == victim || outcome.text.find(its) == std::string::npos, outcome.text);
        }
      },
      victim);
  for (int rank = 0; rank < kWorld; ++rank) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": signal " << result.signal << " " << result.text);
    if (rank == victim) {
      CHECK(result.signal == SIGKILL);
    } else {
      CHECK((result.exited && result.code == 0));
    }
  }
}

}  // namespace

TEST_CASE("first cause: a rank that dies while all add a process set") {
  lose_a_rank_while_all_add_a_set(kVictim, SIGKILL, std::chrono::seconds(0));
}

TEST_CASE("first cause: a rank that is stopped while all add a process set", "[.long]") {
  // A rank that only waits for a core is not to be taken for it.
  lose_a_rank_while_all_add_a_set(kVictim, SIGSTOP, std::chrono::seconds(5));
}

// Only those that wait for it miss it, for as long as they may.
TEST_CASE("first cause: a rank that is stopped while all add a process set, without a limit") {
  lose_a_rank_while_all_add_a_set(kVictim, SIGSTOP, std::chrono::seconds(0));
}

TEST_CASE("first cause: rank 0 is stopped while all add a process set", "[.long]") {
  lose_a_rank_while_all_add_a_set(0, SIGSTOP, std::chrono::seconds(0));
}

namespace {

// The TCP connections of this process, by the two ports of each.
std::map<std::pair<int, int>, int> own_connections() {
  std::map<std::pair<int, int>, int> found;
  const auto port_of = [](int fd, auto name) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (name(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
    return address.sin_family == AF_INET ? static_cast<int>(ntohs(address.sin_port)) : 0;
  };
  for (int fd = 0; fd < 1024; ++fd) {
    const std::pair<int, int> ports(port_of(fd, getsockname), port_of(fd, getpeername));
    if (ports.first != 0 && ports.second != 0) found[ports] = fd;
  }
  return found;
}

struct Ports {
  std::atomic<int> of_rank_2[1024];

  static Ports& get() {
    static auto* const ports = new (mmap(nullptr, sizeof(Ports), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Ports;
    return *ports;
  }
};

// In the middle of transfers: an end of file for the other side, or a reset for both.
void break_connection(int fd, bool reset) {
  std::this_thread::sleep_for(milliseconds(100));
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  check((reset ? connect(fd, &nowhere, sizeof nowhere) : shutdown(fd, SHUT_RDWR)) == 0, "break");
}

}  // namespace

// All processes live, and so do all other connections.
TEST_CASE("first cause: one connection between two ranks breaks", "[.long]") {
  const bool reset = GENERATE(false, true);
  INFO("reset: " << reset);
  WorldOptions options;
  options.size = 3;
  options.backends = GENERATE("tcp", "gloo");
  if (options.backends == "gloo" && !has_gloo()) return;
  Ports& ports = Ports::get();
  expect_all_to_know(options, [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    Tensor tensor(HORA_FLOAT32, {3'000'000});
    Call(communicator, reduce_request("work", tensor, tensor)).finish();
    if (rank == 2) {
      std::size_t at = 0;
      for (auto& port : ports.of_rank_2) port = 0;
      for (const auto& [pair, fd] : own_connections()) ports.of_rank_2[at++] = pair.first;
    }
    Call(communicator, reduce_request("work", tensor, tensor)).finish();
    std::thread striker;
    if (rank == 1) {
      int between = -1;
      for (const auto& [pair, fd] : own_connections()) {
        if (std::count(ports.of_rank_2, ports.of_rank_2 + 1024, pair.second) > 0) between = fd;
      }
      check(between >= 0, "no connection");
      striker = std::thread(break_connection, between, reset);
    }
    hora_status status = HORA_OK;
    std::string text;
    while (status == HORA_OK) {
      Call call(communicator, reduce_request("work", tensor, tensor));
      status = call.wait();
      text = call.error();
    }
    if (striker.joinable()) striker.join();
    check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
    // Gloo reports the awaited rank, TCP links the connection, whichever rank is awaited.
    const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
    const auto reports = [&](const std::string& teller, const std::string& other) {
      return has(teller + " (") &&
             (has(other + ":") || has("connection to " + other + " has ended"));
    };
    check(reports("rank 1", "rank 2") || reports("rank 2", "rank 1"), text);
  });
}

// Its pages of shared memory run out: that set is without, and all others are as they were.
TEST_CASE("first cause: no room for a later set's shared memory on one rank") {
  WorldOptions options;
  options.size = kWorld;
  expect_all_to_know(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    Tensor tensor(HORA_FLOAT32, {100'000});
    Call(communicator, reduce_request("warm-up", tensor, tensor)).finish();
    if (rank == kVictim) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit little{1 << 20, 1 << 20};
      check(setrlimit(RLIMIT_FSIZE, &little) == 0, "setrlimit");
    }
    for (int round = 0; round < 2; ++round) {
      std::int32_t set = 0;
      const auto outcome = communicator.add_process_set({1, 2}, &set);
      check(outcome.status == HORA_OK, outcome.text);
      fill(tensor, rank);
      hora_request request = reduce_request("in the set", tensor, tensor);
      request.process_set = set;
      if (rank == 1 || rank == 2) {
        Call(communicator, request).finish();
        check(tensor.get(3) == reduced(HORA_FLOAT32, HORA_SUM, {1, 2}, 3), "a wrong sum");
      }
      fill(tensor, rank);
      Call(communicator, reduce_request("in the world", tensor, tensor)).finish();
      check(tensor.get(3) == reduced(HORA_FLOAT32, HORA_SUM, {0, 1, 2, 3}, 3), "a wrong sum");
      check(communicator.remove_process_set(set).status == HORA_OK, "not removed");
    }
  });
}
