// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/keyed_gathering.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/little_endian.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/net/unauthenticated.h"

namespace hora::collectives {

namespace {

constexpr std::size_t kGreetingBytes = kKeyBytes + 4;
// Any process may connect: how many may be here besides those that are awaited.
constexpr std::size_t kMostOthers = 64;
constexpr int kLookMs = 50;
constexpr std::uint64_t kNewConnection = 0;  // an event of the listener

struct UnreadGreeting {
  bool has_spoken() const { return !greeting.empty(); }

  os::Fd socket;
  std::string greeting;
};

// Reads what there is of the greeting.
void listen_to(UnreadGreeting& each) {
  char bytes[kGreetingBytes];
  while (each.greeting.size() < kGreetingBytes) {
    const ssize_t count =
        ::recv(each.socket.get(), bytes, kGreetingBytes - each.greeting.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return each.socket.reset();
    each.greeting.append(bytes, static_cast<std::size_t>(count));
  }
}

}  // namespace

Status greet(int socket, std::string_view key, int number, Deadline deadline) {
  std::string greeting(key);
  append_u32(greeting, static_cast<std::uint32_t>(number));
  return net::send_all(socket, greeting, deadline);
}

Result<std::map<int, os::Fd>> KeyedGathering::run() {
  std::map<int, os::Fd> came;
  if (awaited.empty()) return came;
  if (listener < 0) return make_error(ErrorCode::kUnavailable, "this rank does not listen");
  const os::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event events[kMostOthers]{};
  events[0].events = EPOLLIN;
  events[0].data.u64 = kNewConnection;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener, events) != 0) {
    return errno_error(errno, "watching for the other ranks");
  }
  const auto receive = [&](UnreadGreeting& each) {
    if (!admits(each.socket.get())) return each.socket.reset();
    listen_to(each);
    if (each.greeting.size() < kGreetingBytes) return;
    os::Fd socket = std::move(each.socket);
    const std::string_view greeting = each.greeting;
    const int number = static_cast<int>(load_u32(greeting.data() + kKeyBytes));
    if (equals_in_constant_time(greeting.substr(0, kKeyBytes), key) && awaited.erase(number) > 0) {
      came[number] = std::move(socket);
    }
  };
  net::Unauthenticated<UnreadGreeting> pending(epoll.get(), kNewConnection + 1, receive);
  while (!awaited.empty()) {
    if (broken_off()) return make_error(ErrorCode::kInterrupted, "the job is ending");
    if (Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut, std::to_string(awaited.size()) + " did not connect");
    }
    const int count = ::epoll_wait(epoll.get(), events, kMostOthers, kLookMs);
    for (int i = 0; i < count; ++i) pending.read(events[i].data.u64);
    HORA_TRY(pending.accept_from(listener, awaited.size(), kMostOthers));
  }
  return came;
}

}  // namespace hora::collectives
