// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/keyed_gathering.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/little_endian.h"
#include "rendezvous/net/socket.h"

namespace hora::collectives {

namespace {

constexpr std::size_t kGreetingBytes = kKeyBytes + 4;
// Any process may connect: how many may be here besides those that are awaited.
constexpr std::size_t kMostOthers = 64;
constexpr int kLookMs = 50;

struct UnreadGreeting {
  os::Fd socket;
  std::string greeting;
};

// Reads what there is of the greeting. False: the connection is over.
bool listen_to(UnreadGreeting& each) {
  char bytes[kGreetingBytes];
  while (each.greeting.size() < kGreetingBytes) {
    const ssize_t count =
        ::recv(each.socket.get(), bytes, kGreetingBytes - each.greeting.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) return false;
    each.greeting.append(bytes, static_cast<std::size_t>(count));
  }
  return true;
}

void accept_some(const KeyedGathering& of, std::vector<UnreadGreeting>& pending) {
  for (std::size_t i = 0; i < kMostOthers; ++i) {
    os::Fd socket(::accept4(of.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    if (of.admits(socket.get())) pending.push_back({std::move(socket), {}});
  }
}

void wait_for(int listener, const std::vector<UnreadGreeting>& pending) {
  std::vector<pollfd> polled{{listener, POLLIN, 0}};
  for (const UnreadGreeting& each : pending) polled.push_back({each.socket.get(), POLLIN, 0});
  (void)::poll(polled.data(), polled.size(), kLookMs);
}

}  // namespace

Status greet(int socket, std::string_view key, int number, Deadline deadline) {
  std::string greeting(key);
  append_u32(greeting, static_cast<std::uint32_t>(number));
  return net::send_all(socket, greeting, deadline);
}

Result<std::map<int, os::Fd>> KeyedGathering::run() {
  std::map<int, os::Fd> came;
  std::vector<UnreadGreeting> pending;
  if (listener < 0 && !awaited.empty()) {
    return make_error(ErrorCode::kUnavailable, "this rank does not listen");
  }
  while (!awaited.empty()) {
    if (broken_off()) return make_error(ErrorCode::kInterrupted, "the job is ending");
    if (Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut, std::to_string(awaited.size()) + " did not connect");
    }
    accept_some(*this, pending);
    std::erase_if(pending, [&](UnreadGreeting& each) {
      if (!listen_to(each)) return true;
      if (each.greeting.size() < kGreetingBytes) return false;
      const std::string_view greeting = each.greeting;
      const int number = static_cast<int>(load_u32(greeting.data() + kKeyBytes));
      if (equals_in_constant_time(greeting.substr(0, kKeyBytes), key) &&
          awaited.erase(number) > 0) {
        came[number] = std::move(each.socket);
      }
      return true;
    });
    const std::size_t most = awaited.size() + kMostOthers;
    if (pending.size() > most) {  // the oldest go first
      pending.erase(pending.begin(),
                    pending.begin() + static_cast<std::ptrdiff_t>(pending.size() - most));
    }
    if (!awaited.empty()) wait_for(listener, pending);
  }
  return came;
}

}  // namespace hora::collectives
