// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/host_link.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

struct Pair {
  os::Fd ours, theirs;
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    ours = os::Fd(fds[0]);
    theirs = os::Fd(fds[1]);
  }
};

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

std::string hello_frame() { return encode_frame(FrameType::kHello, encode(Hello{})); }
std::string log_frame(const std::string& text) {
  return encode_frame(FrameType::kLog, encode(LogLine{1, text}));
}

// A loop that gives up, so that a fault fails the test rather than hangs it.
struct Loop {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  bool timed_out = false;
  void run() {
    loop->call_after(20s, [this] {
      timed_out = true;
      loop->stop();
    });
    REQUIRE(loop->run());
    REQUIRE_FALSE(timed_out);
  }
};

}  // namespace

TEST_CASE("frames behind shell noise arrive; heartbeats only count as a sign of life") {
  Loop loop;
  Pair pair;
  std::vector<FleetEvent> got;
  std::string end;
  HostLink link(*loop.loop, std::move(pair.ours),
                {[&](FleetEvent message) { got.push_back(std::move(message)); },
                 [](const std::string& what) { FAIL(what); },
                 [&](std::string detail) {
                   end = std::move(detail);
                   loop.loop->stop();
                 }});
  REQUIRE(link.open());
  write_all(pair.theirs.get(), "motd\n" + std::string(kAgentMagic) + hello_frame() +
                                   encode_frame(FrameType::kHeartbeat) + log_frame("x"));
  pair.theirs.reset();
  loop.run();
  REQUIRE(got.size() == 2);
  REQUIRE(std::holds_alternative<Hello>(got[0]));
  REQUIRE(std::get<LogLine>(got[1]).message == "x");
  REQUIRE_FALSE(link.is_open());
  REQUIRE(end.find("before the job was over") != std::string::npos);
}

TEST_CASE("a stream without an agent ends with what the shell said") {
  Loop loop;
  Pair pair;
  std::string end;
  HostLink link(*loop.loop, std::move(pair.ours),
                {[](const FleetEvent&) { FAIL("nothing was said"); },
                 [](const std::string& what) { FAIL(what); },
                 [&](std::string detail) {
                   end = std::move(detail);
                   loop.loop->stop();
                 }});
  REQUIRE(link.open());
  write_all(pair.theirs.get(), "sh: horribly broken\n");
  pair.theirs.reset();
  loop.run();
  REQUIRE(end == "no agent answered; the remote side printed: sh: horribly broken");
}

TEST_CASE("endless noise is given up on") {
  Loop loop;
  Pair pair;
  std::string end;
  HostLink link(*loop.loop, std::move(pair.ours),
                {[](const FleetEvent&) {}, [](const std::string& what) { FAIL(what); },
                 [&](std::string detail) {
                   end = std::move(detail);
                   loop.loop->stop();
                 }});
  REQUIRE(link.open());
  ::signal(SIGPIPE, SIG_IGN);
  std::thread noise([&] { write_all(pair.theirs.get(), std::string(1 << 20, 'n')); });
  loop.run();
  ::shutdown(pair.theirs.get(), SHUT_RDWR);
  noise.join();
  REQUIRE(end.find("64 KiB") != std::string::npos);
}

TEST_CASE("small frames and shared ones go out in order, to a slow reader") {
  Loop loop;
  Pair pair;
  HostLink link(*loop.loop, std::move(pair.ours),
                {[](const FleetEvent&) {}, [](const std::string&) {}, [](const std::string&) {}});
  REQUIRE(link.open());
  const auto shared = std::make_shared<const std::string>(
      encode_frame(FrameType::kData, std::string(3 << 20, 'd')) +
      encode_frame(FrameType::kDataEnd));
  std::string expected;
  for (std::size_t i = 0; i < 3; ++i) {
    link.send(OutputTaken{i});
    append_frame(expected, FrameType::kOutputAck, u32_payload(static_cast<std::uint32_t>(i)));
    link.send_shared(shared);
    expected += *shared;
  }
  std::string got;
  std::thread reader([&] {
    std::string chunk(10'000, '\0');
    while (got.size() < expected.size()) {
      const ssize_t n = ::read(pair.theirs.get(), chunk.data(), chunk.size());
      if (n <= 0) break;
      got.append(chunk, 0, static_cast<std::size_t>(n));
    }
    loop.loop->post([&] { loop.loop->stop(); });
  });
  loop.run();
  reader.join();
  REQUIRE((got == expected));
  REQUIRE(link.queued_bytes() == 0);
}

TEST_CASE("a handler may destroy the link") {
  Loop loop;
  Pair pair;
  std::unique_ptr<HostLink> link;
  int messages = 0;
  link = std::make_unique<HostLink>(
      *loop.loop, std::move(pair.ours),
      HostLink::Handlers{[&](const FleetEvent&) {
                           ++messages;
                           link.reset();
                           loop.loop->stop();
                         },
                         [](const std::string& what) { FAIL(what); },
                         [](const std::string&) { FAIL("closed by us"); }});
  REQUIRE(link->open());
  write_all(pair.theirs.get(), std::string(kAgentMagic) + hello_frame() + log_frame("2"));
  loop.run();
  REQUIRE(messages == 1);
}

TEST_CASE("nothing is read after a violation of the protocol") {
  Loop loop;
  Pair pair;
  std::string wrong;
  HostLink link(*loop.loop, std::move(pair.ours),
                {[](const FleetEvent& message) { REQUIRE(std::holds_alternative<Hello>(message)); },
                 [&](std::string what) {
                   REQUIRE(wrong.empty());
                   wrong = std::move(what);
                   loop.loop->stop();
                 },
                 [](const std::string& detail) { FAIL(detail); }});
  REQUIRE(link.open());
  write_all(pair.theirs.get(), std::string(kAgentMagic) + hello_frame() +
                                   encode_frame(FrameType::kReady) + log_frame("not read"));
  loop.run();
  REQUIRE(wrong == "ready: out of turn");
  REQUIRE_FALSE(link.is_open());
}
