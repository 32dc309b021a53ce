// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/acceptor.h"

#include <sys/epoll.h>

#include <chrono>
#include <utility>

namespace hora::net {

namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr std::chrono::milliseconds kRest{100};  // when no descriptor is free

}  // namespace

Acceptor::Acceptor(os::EventLoop& loop, os::Fd listener, Handler handler)
    : loop_(loop), listener_(std::move(listener)), handler_(std::move(handler)) {}

// The number of the socket is the next file's: nothing may still mean this one by it.
Acceptor::~Acceptor() {
  loop_.cancel(rest_);
  loop_.unwatch(listener_.get());
}

Status Acceptor::start() {
  auto where = local_endpoint(listener_.get());
  if (!where) return std::move(where).error();
  port_ = where->port;
  return loop_.watch(
      listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); },
      os::EventLoop::Priority::kBackground);
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = accept_tcp(listener_.get());
    if (!accepted) {
      // No descriptor is free. The connection stays in the queue, and would be reported again at
      // once and for ever.
      (void)loop_.change(listener_.get(), 0);
      rest_ = loop_.call_after(kRest, [this] { (void)loop_.change(listener_.get(), EPOLLIN); });
      return;
    }
    if (!accepted->has_value()) return;
    handler_(std::move(**accepted));
  }
}

}  // namespace hora::net
