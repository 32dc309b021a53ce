// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/prober.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

void run_for(os::EventLoop& loop, std::chrono::milliseconds time) {
  loop.call_after(time, [&loop] { loop.stop(); });
  REQUIRE(loop.run());
}

}  // namespace

TEST_CASE("a listener that had no descriptor to spare leaves nothing behind") {
  const auto loop = std::move(*os::EventLoop::create());
  auto listener = std::move(*ProbeListener::create(*loop));
  const os::Fd caller = net::connect_tcp({*parse_ip_address("127.0.0.1"),
                                          static_cast<std::uint16_t>(listener->port())},
                                         Clock::now() + 20s)
                            .value();
  {
    const test::DescriptorLimit none(0);
    run_for(*loop, 1ms);  // it rests
  }
  // Its number is taken by a pipe that is watched for room to write.
  os::Pipe pipe;
  REQUIRE(pipe.open());
  const os::Fd lowest(::fcntl(pipe.write_end.get(), F_DUPFD_CLOEXEC, 0));
  listener.reset();
  const os::Fd next(::fcntl(pipe.write_end.get(), F_DUPFD_CLOEXEC, 0));
  REQUIRE(next.get() < lowest.get());
  int woken = 0;
  REQUIRE(loop->watch(next.get(), EPOLLOUT, [&](std::uint32_t) { ++woken; }));
  run_for(*loop, 200ms);  // longer than its rest
  const int before = std::exchange(woken, 0);
  run_for(*loop, 20ms);
  CHECK(before > 0);
  CHECK(woken > 0);
  loop->unwatch(next.get());
}
