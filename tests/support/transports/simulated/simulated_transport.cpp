// SPDX-License-Identifier: Apache-2.0
// Gives every host's stream to the program that started us, hora-simulated-hosts, which plays the
// agents of them all.
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "launcher/transports/transport.h"
#include "tests/support/transports/simulated/handed_over.h"

namespace hora::launcher {

namespace {

// One message with the host's name and the other end of its stream.
Status hand_over(int channel, const std::string& name, const os::Fd& stream) {
  iovec text{const_cast<char*>(name.data()), name.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = stream.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (::sendmsg(channel, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno_error(errno, "handing a stream over for " + name);
  }
  return Ok{};
}

class SimulatedTransport : public Transport {
 public:
  explicit SimulatedTransport(StageObserver observer) : observer_(std::move(observer)) {}

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage&,
                       Clock::time_point) override {
    const char* channel = std::getenv(test::kHandOverVariable);
    if (channel == nullptr) {
      return make_error(ErrorCode::kUsage,
                        "--transport simulated works below hora-simulated-hosts only");
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return errno_error(errno, "making a socketpair for " + host.name);
    }
    os::Fd ours(ends[0]);
    const os::Fd theirs(ends[1]);
    HORA_TRY(hand_over(std::atoi(channel), host.name, theirs));
    observer_(host_index, Stage::kShell, "");
    return ours;
  }

 private:
  StageObserver observer_;
};

constexpr TransportDescriptor kDescriptor{
    .name = "simulated",
    .how = "a program that plays the agents of all hosts",
    .create = [](const JobSpec&, StageObserver observer) {
      return std::unique_ptr<Transport>(std::make_unique<SimulatedTransport>(std::move(observer)));
    }};

}  // namespace

const TransportDescriptor* simulated_transport_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
