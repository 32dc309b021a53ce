// SPDX-License-Identifier: Apache-2.0
// Asks an ssh-agent for its list of keys before libssh does. libssh talks to the agent with
// blocking reads and no timeout, so an agent that hangs would hold up every host of the event
// loop's thread.
#include "launcher/transports/ssh_agent_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// How long an agent may take to answer. All hosts share one answer, so the wait happens once.
constexpr std::chrono::seconds kPatience{3};
// A length of one byte, and SSH_AGENTC_REQUEST_IDENTITIES.
constexpr unsigned char kListKeys[] = {0, 0, 0, 1, 11};

// Polls until the event or the deadline, and resumes after a signal.
bool is_ready(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const int left_ms = os::milliseconds_until(deadline);
    if (left_ms == 0) return false;
    pollfd waiting{fd, events, 0};
    const int got = ::poll(&waiting, 1, left_ms);
    if (got > 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

// Returns false only when the agent is there and stays silent. Any other failure returns true:
// libssh then meets the same error at once, without hanging, and reports it.
bool ask(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return true;
  std::memcpy(address.sun_path, path.data(), path.size());
  const os::Fd agent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!agent.valid()) return true;
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  // EAGAIN means that the agent's backlog is full: it has stopped accepting connections.
  if (::connect(agent.get(), to, sizeof address) != 0) return errno != EAGAIN;
  const auto deadline = Clock::now() + kPatience;
  if (::send(agent.get(), kListKeys, sizeof kListKeys, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof kListKeys)) {
    return true;
  }
  return is_ready(agent.get(), POLLIN, deadline);
}

}  // namespace

// The lock is held while the agent is asked: the other threads need the same answer, and a second
// question to an agent that hangs would cost the same time again.
bool agent_answers(const std::string& socket_path) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  std::lock_guard lock(mutex);
  const auto found = known.find(socket_path);
  if (found != known.end()) return found->second;
  return known[socket_path] = ask(socket_path);
}

}  // namespace hora::launcher
