// SPDX-License-Identifier: Apache-2.0
// The parts that the links to hosts are made of.
#include <fcntl.h>
#include <sys/socket.h>

#include "launcher/transports/agent_link.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/supervisor_socket.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;

TEST_CASE("frames end where their headers say, however the bytes arrive") {
  const std::string frames =
      encode_frame(FrameType::kOutput, "some output") + encode_frame(FrameType::kGoodbye, "x");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, frames.size()}) {
    FrameBoundaries boundaries;
    CHECK(boundaries.between_frames());
    std::size_t whole = 0;
    for (std::size_t at = 0; at < frames.size(); at += piece) {
      boundaries.pass(std::string_view(frames).substr(at, piece));
      whole += boundaries.between_frames() ? 1 : 0;
    }
    CHECK(boundaries.between_frames());
    CHECK(boundaries.has_last_frame());
    CHECK(whole >= 1);
  }
  FrameBoundaries torn;
  torn.pass(std::string_view(frames).substr(0, 7));
  CHECK_FALSE(torn.between_frames());
  CHECK_FALSE(torn.has_last_frame());
}

TEST_CASE("the agent goes out once, behind what was said before") {
  OutgoingBytes out;
  out.append("header");
  out.ship(std::make_shared<const std::string>("AGENT"));
  CHECK(out.front() == "header");
  CHECK(out.own_size() == 6);
  out.pop(6);
  CHECK(out.front() == "AGENT");
  out.pop(2);
  CHECK(out.front() == "ENT");
  CHECK(out.shipping());
  out.pop(3);
  CHECK_FALSE(out.shipping());
  CHECK(out.front().empty());
  out.append("x");
  out.ship(std::make_shared<const std::string>("AGENT"));
  out.clear();
  CHECK(out.front().empty());
}

TEST_CASE("the supervisor's socket: bytes both ways, its end, its loss") {
  auto loop = std::move(os::EventLoop::create()).value();
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  os::Fd other(ends[0]);
  SupervisorSocket socket(*loop, os::Fd(ends[1]));
  REQUIRE(socket.open([](std::uint32_t) {}));
  OutgoingBytes read;
  socket.read_into(read, 100);
  CHECK(read.front().empty());
  CHECK_FALSE(socket.at_end());
  REQUIRE(::send(other.get(), "hello", 5, 0) == 5);
  socket.read_into(read, 100);
  CHECK(read.front() == "hello");

  socket.append("answer");
  CHECK(socket.waiting() == 6);
  socket.write();
  CHECK(socket.waiting() == 0);
  char bytes[16];
  CHECK(::recv(other.get(), bytes, sizeof bytes, 0) == 6);

  // More than the socket takes stays queued.
  const std::string large(8 << 20, 'x');
  socket.append(large);
  socket.write();
  CHECK(socket.waiting() > 0);
  CHECK(socket.waiting() < large.size());
  CHECK_FALSE(socket.gone());
  other.reset();
  socket.write();
  CHECK(socket.gone());
  CHECK(socket.at_end());
  CHECK(socket.waiting() == 0);
}

TEST_CASE("the pause before another attempt grows, with a random part, to a limit") {
  BackOff back_off;
  for (int round = 0; round < 3; ++round) {
    milliseconds longest{100};
    for (int attempt = 1; attempt <= 9; ++attempt) {
      back_off.count_attempt();
      const auto pause = back_off.next_pause();
      INFO(attempt << ": " << pause.count());
      CHECK(pause >= longest / 2);
      CHECK(pause < longest + longest / 2);
      longest = std::min(longest * 2, milliseconds{2'000});
    }
    CHECK(back_off.attempts() == 9);
    back_off.reset();
    CHECK(back_off.attempts() == 0);
  }
}

}  // namespace
}  // namespace hora::launcher
