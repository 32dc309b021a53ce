// SPDX-License-Identifier: Apache-2.0
// Rank 0's listener: unauthenticated clients neither get in, nor keep the ranks out, nor cost
// memory.
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "collectives/control/door.h"
#include "collectives/control/frame_buffer.h"
#include "collectives/control/messages.h"
#include "collectives/control/tcp_control.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/limits.h"
#include "tests/support/catch.h"
#include "tests/unit/collectives/control/refused_sends.h"

using namespace hora;
using namespace hora::collectives;

namespace {

constexpr std::chrono::seconds kTimeout{60};

Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

ControlIdentity identity(int rank, int size, std::string token = "the token of this job") {
  return {rank, size, "job", std::move(token), "rank_info of " + std::to_string(rank)};
}

// Rank 0 of `size`, waiting at its door in a thread.
struct Coordinator {
  explicit Coordinator(int size, std::chrono::milliseconds timeout = kTimeout) {
    auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
    REQUIRE(listener);
    where = *net::local_endpoint(listener->get());
    thread = std::thread([this, size, timeout, fd = std::move(*listener)]() mutable {
      const ControlIdentity self = identity(0, size);
      result.emplace(gather_workers(std::move(fd), self, in(timeout)));
    });
  }
  ~Coordinator() {
    if (thread.joinable()) thread.join();
  }
  Result<ControlWorld>& join() {
    thread.join();
    return *result;
  }
  Endpoint where;
  std::thread thread;
  std::optional<Result<ControlWorld>> result;
};

os::Fd pending(const Endpoint& where) {
  auto socket = net::connect_tcp(where, in(kTimeout));
  REQUIRE(socket);
  return std::move(*socket);
}

std::string hello(int rank, int size, std::string_view nonce,
                  std::uint64_t version = meeting::kProtocolVersion) {
  WireWriter out;
  out.u8(1);
  out.text("hora control");
  out.varint(version);
  out.text("job");
  out.integer(rank);
  out.integer(size);
  out.text(nonce);
  out.u8(0);
  std::string frame;
  append_frame(frame, out.take());
  return frame;
}

// What the far side says until it hangs up.
std::string receive_all(int fd) {
  std::string received;
  char chunk[4096];
  while (true) {
    auto count = net::receive_some(fd, chunk, sizeof chunk, in(kTimeout));
    if (!count || *count == 0) return received;
    received.append(chunk, *count);
  }
}

}  // namespace

TEST_CASE("a kernel that has no room for rank 0's answer at this moment keeps no rank out") {
  for (const int error : {EAGAIN, ENOBUFS, ENOMEM, EINTR}) {
    INFO(error);
    Coordinator zero(2);
    test::refuse_sends(3, error);
    const ControlIdentity right = identity(1, 2);
    CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
    CHECK(zero.join());
    CHECK(test::refused_sends_left() == 0);
    test::refuse_sends(0, error);
  }
}

TEST_CASE("a meeting that cannot be any more is given up before its time") {
  auto listener = open_control_listener(*hora::parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  int asked = 0;
  const auto world = gather_workers(std::move(*listener), ControlIdentity{0, 2, "job", "token", ""},
                                    hora::Clock::now() + std::chrono::hours(1),
                                    {[&asked] { return ++asked == 2; }, {}});
  REQUIRE(!world);
  CHECK(world.error().code == hora::ErrorCode::kUnavailable);
  CHECK(asked == 2);
}

TEST_CASE(
    "unauthenticated clients that keep sending do not keep rank 0 from seeing that a meeting is "
    "over") {
  auto listener = open_control_listener(*hora::parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  std::atomic<bool> over = false;
  bool over_meanwhile = false;
  std::thread talker([&] {
    const os::Fd socket = pending(where);
    std::string frame;
    append_frame(frame, std::string(4000, 'x'));  // a greeting, a byte at a time
    for (const char byte : frame.substr(0, 1500)) {
      (void)net::send_all(socket.get(), {&byte, 1}, in(kTimeout));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if ((over_meanwhile = over)) return;
    }
  });
  const ControlIdentity self = identity(0, 2);
  const auto world =
      gather_workers(std::move(*listener), self, in(kTimeout), {[] { return true; }, {}});
  over = true;
  talker.join();
  REQUIRE(!world);
  CHECK(world.error().code == hora::ErrorCode::kUnavailable);
  CHECK(over_meanwhile);
}

// One rank, and a crowd of unauthenticated clients behind it: how many of them still waited when
// the meeting ended.
static int still_waiting_behind_a_rank() {
  constexpr int kCrowd = 1'000;
  auto listener = open_control_listener(*hora::parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  std::atomic<bool> joined = false;
  std::thread rank([&] {
    const ControlIdentity right = identity(1, 2);
    joined = join_tree({where, "rank 0", {}}, right, in(kTimeout)).has_value();
  });
  REQUIRE(net::wait_readable(listener->get(), in(kTimeout), "the rank"));
  std::vector<os::Fd> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.push_back(pending(where));
  std::thread zero([fd = std::move(*listener)]() mutable {
    // The rank has to be quicker than this.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 5);
    const ControlIdentity self = identity(0, 2);
    (void)gather_workers(std::move(fd), self, in(kTimeout));
  });
  zero.join();
  rank.join();
  CHECK(joined);
  // Admitted clients are hung up on. The others are reset, as the listener is closed.
  int reset = 0;
  for (const os::Fd& socket : crowd) {
    char byte = 0;
    reset += !net::receive_some(socket.get(), &byte, 1, in(kTimeout));
  }
  return reset;
}

TEST_CASE("a rank is let in before all of a crowd that stands behind it was") {
  os::raise_file_limit();
  // The kernel may keep the rank from running until rank 0 has served the whole crowd. Where rank 0
  // serves it first in any case, that is so every time.
  bool before_all = false;
  for (int turn = 0; turn < 20 && !before_all; ++turn)
    before_all = still_waiting_behind_a_rank() > 0;
  CHECK(before_all);
}

TEST_CASE("a process without the token is refused, and the job goes on") {
  Coordinator zero(2);
  const ControlIdentity wrong = identity(1, 2, "another token");
  const auto intruder = join_tree({zero.where, "rank 0", {}}, wrong, in(kTimeout));
  REQUIRE(!intruder);
  CHECK(intruder.error().message.find("token") != std::string::npos);
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
  CHECK(zero.join());
}

TEST_CASE(
    "a rank with another version of libhora is refused by both versions, and the job goes on") {
  Coordinator zero(2);
  const os::Fd older = pending(zero.where);
  const std::uint64_t version = meeting::kProtocolVersion - 1;
  REQUIRE(net::send_all(older.get(), hello(1, 2, std::string(16, 'n'), version), in(kTimeout)));
  CHECK(receive_all(older.get())
            .find("the ranks run different versions of libhora: control protocol " +
                  std::to_string(version) + " on this rank, " +
                  std::to_string(meeting::kProtocolVersion) + " on rank 0") != std::string::npos);
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
  CHECK(zero.join());
}

TEST_CASE("what a rank said once opens no door a second time") {
  // The messages of a rank that was admitted, as an eavesdropper on the network has them.
  std::string said;
  {
    Coordinator zero(2);
    os::Fd rank = pending(zero.where);
    const std::string nonce(16, 'n');
    const std::string first = hello(1, 2, nonce);
    REQUIRE(net::send_all(rank.get(), first, in(kTimeout)));
    FrameBuffer buffer;
    std::optional<std::string> challenge;
    char chunk[4096];
    while (!(challenge = buffer.next())) {
      auto count = net::receive_some(rank.get(), chunk, sizeof chunk, in(kTimeout));
      REQUIRE(count);
      REQUIRE(*count > 0);
      buffer.append({chunk, *count});
    }
    WireReader in_challenge(*challenge);
    REQUIRE(in_challenge.u8() == 2);
    const std::string their_nonce = in_challenge.text();
    WireWriter proof;
    proof.u8(3);
    proof.text(handshake_proof("the token of this job", "worker", nonce, their_nonce, 1));
    proof.text("rank_info");
    std::string second;
    append_frame(second, proof.take());
    REQUIRE(net::send_all(rank.get(), second, in(kTimeout)));
    CHECK(zero.join());
    said = first + second;
  }
  Coordinator zero(2);
  os::Fd replay = pending(zero.where);
  REQUIRE(net::send_all(replay.get(), said, in(kTimeout)));
  CHECK(receive_all(replay.get()).find("token is wrong") != std::string::npos);
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
  CHECK(zero.join());
}

TEST_CASE("hundreds of silent clients do not keep a rank out") {
  Coordinator zero(2);
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(pending(zero.where));
  // There is no room for that many: the first has been disconnected.
  char byte = 0;
  const auto end = net::receive_some(crowd.front().get(), &byte, 1, in(kTimeout));
  CHECK((end ? *end == 0 : end.error().code != ErrorCode::kTimedOut));
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
  CHECK(zero.join());
}

// In a process of its own, which has few descriptors.
TEST_CASE("unauthenticated clients that take the last descriptor are disconnected") {
#if defined(__SANITIZE_ADDRESS__)
  return;  // UBSan needs a descriptor to look at an object, and takes it for damaged without one
#endif
  auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  const pid_t zero = ::fork();
  REQUIRE(zero >= 0);
  if (zero == 0) {
    rlimit few{};
    ::getrlimit(RLIMIT_NOFILE, &few);
    few.rlim_cur = few.rlim_max = static_cast<rlim_t>(listener->get()) + 12;
    const bool limited = ::setrlimit(RLIMIT_NOFILE, &few) == 0;
    const ControlIdentity self = identity(0, 2);
    ::_exit(limited && gather_workers(std::move(*listener), self, in(kTimeout)) ? 0 : 1);
  }
  listener->reset();
  std::vector<os::Fd> crowd;
  for (int i = 0; i < 60; ++i) crowd.push_back(pending(where));
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({where, "rank 0", {}}, right, in(kTimeout)));
  int status = -1;
  REQUIRE(::waitpid(zero, &status, 0) == zero);
  CHECK(status == 0);
}

// In a process of its own, too: the limit of this one stays as it is.
TEST_CASE("rank 0 takes the descriptors that it needs for its ranks, or says that it cannot") {
  constexpr int kRanks = 40;
  const auto limited = [](rlim_t soft, rlim_t hard, auto work) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const rlimit few{soft, hard};
      ::_exit(::setrlimit(RLIMIT_NOFILE, &few) == 0 && work() ? 0 : 1);
    }
    return child;
  };
  const auto succeeded = [](pid_t child) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status == 0;
  };
  rlimit now{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
  auto listener = open_control_listener(*parse_ip_address("127.0.0.1"));
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  const auto few = static_cast<rlim_t>(listener->get()) + 12;
  const ControlIdentity zero = identity(0, kRanks);
  const pid_t refused = limited(few, few, [&] {
    const auto world = gather_workers(std::move(*listener), zero, in(kTimeout));
    return !world && world.error().message.find("for each of 40 ranks") != std::string::npos;
  });
  CHECK(succeeded(refused));
  const pid_t waits = limited(few, now.rlim_max, [&] {
    return gather_workers(std::move(*listener), zero, in(kTimeout)).has_value();
  });
  listener->reset();
  std::atomic<int> joined = 0;
  std::vector<std::thread> ranks;
  for (int rank = 1; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const ControlIdentity self = identity(rank, kRanks);
      joined += join_tree({where, "rank 0", {}}, self, in(kTimeout)).has_value();
    });
  }
  for (std::thread& each : ranks) each.join();
  CHECK(joined == kRanks - 1);
  CHECK(succeeded(waits));
}

TEST_CASE("rank 0 disconnects clients that are not ranks, or that send more than a greeting") {
  Coordinator zero(2);
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0'),
        std::string("\xff\xff\xff\x7f"), hello(7, 2, std::string(16, 'n')), hello(1, 2, "short"),
        std::string("\x01\x20\x00\x00", 4) + std::string(1 << 20, 'x')}) {
    os::Fd socket = pending(zero.where);
    (void)net::send_all(socket.get(), words, in(kTimeout));  // it may hang up before all is sent
    ::shutdown(socket.get(), SHUT_WR);
    CHECK(receive_all(socket.get()).find("proof") == std::string::npos);
  }
  const ControlIdentity right = identity(1, 2);
  CHECK(join_tree({zero.where, "rank 0", {}}, right, in(kTimeout)));
  CHECK(zero.join());
}

TEST_CASE("a rank does not talk to a coordinator that cannot prove the token") {
  auto listener = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0});
  REQUIRE(listener);
  const Endpoint where = *net::local_endpoint(listener->get());
  std::string received;
  std::thread impostor([fd = listener->get(), &received] {
    std::optional<net::Accepted> accepted;
    while (!accepted) {
      auto got = net::accept_tcp(fd);
      if (!got) return;
      if (*got) accepted = std::move(**got);
    }
    WireWriter out;
    out.u8(2);
    out.text(std::string(16, 'c'));
    out.text(std::string(32, 'p'));
    out.integer(0);
    std::string frame;
    append_frame(frame, out.take());
    (void)net::send_all(accepted->fd.get(), frame, in(kTimeout));
    received = receive_all(accepted->fd.get());
  });
  const ControlIdentity self = identity(1, 2);
  const auto joined = join_tree({where, "rank 0", {}}, self, in(kTimeout));
  impostor.join();
  REQUIRE(!joined);
  CHECK(joined.error().message.find("does not know the job token") != std::string::npos);
  CHECK(received.find("hora control") != std::string::npos);
  CHECK(received.find("rank_info of") == std::string::npos);  // it got the hello alone
}
