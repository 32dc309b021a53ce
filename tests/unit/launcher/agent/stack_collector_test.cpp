// SPDX-License-Identifier: Apache-2.0
// Clients of the collector, and their bytes, keep the agent from its job for no longer than a turn
// of its loop.
#include "launcher/agent/stack_collector.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <filesystem>
#include <vector>

#include "rendezvous/os/local_socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

os::Fd connect_to(const std::string& name) {
  os::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const os::AbstractAddress address(name);
  REQUIRE(::connect(fd.get(), address.get(), address.size()) == 0);
  return fd;
}

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += !entry.path().empty();
  }
  return count;
}

// Once through everything that is ready: timers come after it.
void run_a_turn(os::EventLoop& loop) {
  loop.call_after(Clock::duration::zero(), [&loop] { loop.stop(); });
  REQUIRE(loop.run());
}

}  // namespace

TEST_CASE("who connects to the collector is let in, some at a time") {
  constexpr int kConnections = 100;
  auto loop = os::EventLoop::create();
  REQUIRE(loop);
  StackCollector collector(**loop);
  const std::string name = collector.open();
  std::vector<os::Fd> crowd;
  for (int i = 0; i < kConnections; ++i) crowd.push_back(connect_to(name));
  const int before = open_descriptors();
  run_a_turn(**loop);
  const int first = open_descriptors() - before;
  CHECK(first > 0);
  CHECK(first <= 64);
  for (int turn = 0; turn < kConnections; ++turn) run_a_turn(**loop);
  CHECK(open_descriptors() - before == kConnections);
}

TEST_CASE("what is written to the collector is read, some at a time") {
  auto loop = os::EventLoop::create();
  REQUIRE(loop);
  StackCollector collector(**loop);
  const os::Fd speaker = connect_to(collector.open());
  run_a_turn(**loop);
  const std::vector<char> words(4096, 'x');
  std::size_t sent = 0;
  while (::send(speaker.get(), words.data(), words.size(), MSG_NOSIGNAL) > 0) sent += words.size();
  const auto unread = [&] {
    int bytes = -1;
    REQUIRE(::ioctl(speaker.get(), SIOCOUTQ, &bytes) == 0);
    return bytes;
  };
  REQUIRE(sent > 16 * 8192);
  run_a_turn(**loop);
  CHECK(unread() > 0);
  for (std::size_t turn = 0; turn < sent / words.size(); ++turn) run_a_turn(**loop);
  CHECK(unread() == 0);
}
