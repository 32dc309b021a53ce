// SPDX-License-Identifier: Apache-2.0
// The socket has a name in the abstract namespace: it leaves no file, and exists as long as the
// socket does. Such a name is for all users of the network namespace, so each side looks at the
// other one's user.
#include "collectives/control/host_star.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "collectives/control/keyed_gathering.h"
#include "collectives/control/tcp_channel.h"
#include "rendezvous/os/local_socket.h"
#include "rendezvous/os/random.h"

namespace hora::collectives {

namespace {

constexpr std::chrono::milliseconds kLook{50};
constexpr int kBacklog = 4096;

// "NETWORK NAMESPACE/USER/NAME": the first two are equal on ranks that can meet.
std::string_view name_in(std::string_view card) { return card.substr(card.rfind('/') + 1); }
std::string_view key_in(std::string_view name) { return name.substr(name.find('-') + 1); }
std::string_view realm_in(std::string_view card) { return card.substr(0, card.rfind('/')); }

os::Fd make_socket() {
  return os::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_own_user(int socket) {
  const auto peer = os::peer_of(socket);
  return peer && peer->uid == ::geteuid();
}

Error give_up(const std::string& what) {
  return make_error(ErrorCode::kTimedOut, "meeting the ranks of this host: " + what);
}

// The first rank's socket listens before anyone has its card.
Result<os::Fd> reach(std::string_view name, int place, Deadline deadline,
                     const std::function<bool()>& broken_off) {
  const os::AbstractAddress address(name);
  os::Fd socket = make_socket();
  while (socket.valid() && ::connect(socket.get(), address.get(), address.size()) != 0) {
    const bool may_come = errno == EAGAIN || errno == EINTR;  // its queue is full
    if (!may_come) return errno_error(errno, "meeting the ranks of this host");
    if (broken_off()) return make_error(ErrorCode::kInterrupted, "the job is ending");
    if (Clock::now() >= deadline) return give_up("the first one does not answer");
    std::this_thread::sleep_for(kLook);
  }
  if (!socket.valid()) return errno_error(errno, "meeting the ranks of this host");
  if (!is_own_user(socket.get())) {
    return make_error(ErrorCode::kDenied, "the first rank's socket on this host is another user's");
  }
  HORA_TRY(greet(socket.get(), key_in(name), place, deadline));
  return socket;
}

}  // namespace

LocalListener LocalListener::open() {
  LocalListener own;
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) return own;
  const std::string name = "hora-" + os::random_token();
  const os::AbstractAddress address(name);
  os::Fd socket = make_socket();
  if (!socket.valid() || ::bind(socket.get(), address.get(), address.size()) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return own;
  }
  own.socket = std::move(socket);
  own.card = std::to_string(network.st_ino) + "/" + std::to_string(::geteuid()) + "/" + name;
  return own;
}

bool can_meet_on_host(const std::vector<std::string>& cards) {
  constexpr std::size_t kLongestName = sizeof(sockaddr_un::sun_path) - 1;
  return cards.size() > 1 && std::ranges::all_of(cards, [&](const std::string& card) {
           return !card.empty() && realm_in(card) == realm_in(cards.front()) &&
                  name_in(card).size() <= kLongestName;
         });
}

Result<std::unique_ptr<ControlChannel>> meet_on_host(LocalListener listener,
                                                     const std::vector<std::string>& cards,
                                                     int place, Deadline deadline,
                                                     const std::function<bool()>& broken_off) {
  auto channel = std::make_unique<TcpChannel>();
  if (place == 0) {
    KeyedGathering gathering;
    gathering.listener = listener.socket.get();
    gathering.key = key_in(name_in(cards.front()));
    for (int other = 1; other < static_cast<int>(cards.size()); ++other) {
      gathering.awaited.insert(other);
    }
    gathering.deadline = deadline;
    gathering.broken_off = broken_off;
    gathering.admits = is_own_user;
    auto came = gathering.run();
    if (!came) return std::move(came).error().with_context("meeting the ranks of this host");
    for (auto& [other, socket] : *came) HORA_TRY(channel->add_peer(other, std::move(socket), {}));
  } else {
    auto socket = reach(name_in(cards.front()), place, deadline, broken_off);
    if (!socket) return std::move(socket).error();
    HORA_TRY(channel->add_way_to_rank_0(0, std::move(*socket), {}));
  }
  return std::unique_ptr<ControlChannel>(std::move(channel));
}

}  // namespace hora::collectives
