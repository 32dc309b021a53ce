// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/door.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank) {
  // The role keeps a proof from being reflected to the process that computed it.
  return hmac_of_fields(token, {role, worker_nonce, coordinator_nonce, std::to_string(rank)});
}

using namespace meeting;

namespace {

constexpr std::uint32_t kLargestHello = 4096;  // from any client
constexpr std::uint32_t kLargestProof = 1 << 20;
constexpr int kWordsPerTurn = 256;  // from as many candidates it is read between two looks
constexpr std::uint64_t kListener = 0;
constexpr std::chrono::milliseconds kRoomPause{10};  // until the kernel may have room again

}  // namespace

HandshakeAcceptor::HandshakeAcceptor(os::Fd listener, ControlIdentity self, bool takes_nodes,
                                     std::function<bool(int)> is_in)
    : listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      self_(std::move(self)),
      takes_nodes_(takes_nodes),
      is_in_(std::move(is_in)),
      candidates_(epoll_.get(), kListener + 1, [this](Candidate& each) { converse(each); }) {}

Status HandshakeAcceptor::open() {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListener;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) == 0) return Ok{};
  return errno_error(errno, "watching for the other ranks");
}

Deadline HandshakeAcceptor::next_look() const { return look_again_; }

Result<std::vector<PendingPeer>> HandshakeAcceptor::look(Deadline until) {
  epoll_event events[kWordsPerTurn];
  const int count = ::epoll_wait(epoll_.get(), events, kWordsPerTurn,
                                 os::milliseconds_until(std::min(until, next_look())));
  if (count < 0 && errno != EINTR) return errno_error(errno, "waiting for the other ranks");
  for (int i = 0; i < count; ++i) candidates_.read(events[i].data.u64);
  // No event says that the kernel has room again: EPOLLOUT knows the connection's own buffer only.
  if (std::exchange(look_again_, Deadline::max()) != Deadline::max()) {
    candidates_.read_all_that_have_spoken();
  }
  const auto ranks = static_cast<std::size_t>(self_.size);
  if (Status accepted = candidates_.accept_from(listener_.get(), ranks, kMaxUnauthenticated);
      !accepted) {
    return std::move(accepted).error().with_context("accepting a rank");
  }
  return std::exchange(came_, {});
}

// A rank may come twice between two looks.
bool HandshakeAcceptor::is_in(int rank) const {
  return is_in_(rank) || std::any_of(came_.begin(), came_.end(),
                                     [&](const PendingPeer& each) { return each.rank == rank; });
}

void HandshakeAcceptor::converse(Candidate& candidate) {
  push(candidate);
  read_from(candidate);
}

void HandshakeAcceptor::say(Candidate& candidate, std::string_view message) {
  append_frame(candidate.out, message);
  push(candidate);
}

// A few hundred bytes on a fresh connection: the kernel takes them at once, unless it is short of
// memory.
void HandshakeAcceptor::push(Candidate& candidate) {
  std::string& out = candidate.out;
  while (candidate.socket.valid() && !out.empty()) {
    const ssize_t sent =
        ::send(candidate.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      out.erase(0, static_cast<std::size_t>(sent));
    } else if (os::would_block(errno)) {
      look_again_ = Clock::now() + kRoomPause;
      return;
    } else if (errno != EINTR) {
      candidate.socket.reset();
    }
  }
}

void HandshakeAcceptor::refuse(Candidate& candidate, std::string_view why) {
  say(candidate, refusal(why));
  candidate.socket.reset();
}

void HandshakeAcceptor::read_from(Candidate& candidate) {
  char buffer[16384];
  while (candidate.socket.valid()) {
    const ssize_t count = ::recv(candidate.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
      candidate.socket.reset();
      return;
    }
    candidate.in.append({buffer, static_cast<std::size_t>(count)});
    take_messages(candidate);  // at once: no client may make us keep more than a message
  }
}

void HandshakeAcceptor::take_messages(Candidate& candidate) {
  while (candidate.socket.valid()) {
    // Before the hello any program may be connected, so very little is accepted.
    const std::uint32_t largest = candidate.rank < 0 ? kLargestHello : kLargestProof;
    std::optional<std::string> message = candidate.in.next(largest);
    if (!message) break;
    if (candidate.rank < 0) {
      on_hello(candidate, *message);
    } else {
      on_proof(candidate, *message);
      return;  // what follows belongs to the channel
    }
  }
  if (candidate.in.broken()) candidate.socket.reset();
}

void HandshakeAcceptor::on_hello(Candidate& candidate, std::string_view bytes) {
  WireReader in(bytes);
  const bool hello = in.u8() == kHello && in.text() == kMagic;
  const std::uint64_t version = in.varint();
  const std::string job = in.text();
  const std::int64_t rank = in.integer();
  const std::int64_t size = in.integer();
  candidate.worker_nonce = in.text();
  if (!hello || !in.ok() || candidate.worker_nonce.size() != kNonceBytes) {
    candidate.socket.reset();  // not one of us
    return;
  }
  if (version != kProtocolVersion) {
    return refuse(candidate, "the ranks run different versions of libhora: control protocol " +
                                 std::to_string(version) + " on this rank, " +
                                 std::to_string(kProtocolVersion) + " on rank 0");
  }
  const bool carries = in.u8() != 0;
  if (!in.ok()) {
    candidate.socket.reset();
    return;
  }
  // Ports are reused: a worker may have read the address of a job that has ended.
  if (job != self_.job) return refuse(candidate, "rank 0 at this address belongs to another job");
  if (size != self_.size || rank < 1 || rank >= size) {
    return refuse(candidate, "this rank is " + std::to_string(rank) + " of " +
                                 std::to_string(size) + ", but rank 0 is in a world of " +
                                 std::to_string(self_.size));
  }
  if (is_in(static_cast<int>(rank))) {
    return refuse(candidate, "another process is rank " + std::to_string(rank) + " already");
  }
  if (carries && !takes_nodes_) {
    return refuse(candidate,
                  "this rank speaks for others, and rank 0 expects a connection of each rank: "
                  "HORA_STAR_RANKS has to be the same on all ranks");
  }
  candidate.rank = static_cast<int>(rank);
  candidate.carries = carries;
  // A fresh number from each side, both in both proofs: neither proof can be replayed or
  // reflected (the role is part of it).
  candidate.own_nonce = os::random_bytes(kNonceBytes);
  WireWriter out;
  out.u8(kChallenge);
  out.text(candidate.own_nonce);
  out.text(handshake_proof(self_.token, "coordinator", candidate.worker_nonce, candidate.own_nonce,
                           candidate.rank));
  out.integer(self_.rank);
  say(candidate, out.take());
}

void HandshakeAcceptor::on_proof(Candidate& candidate, std::string_view bytes) {
  WireReader in(bytes);
  const bool proof = in.u8() == kProof;
  const std::string given = in.text();
  std::string rank_info = in.text();
  const std::string expected = handshake_proof(self_.token, "worker", candidate.worker_nonce,
                                               candidate.own_nonce, candidate.rank);
  // The time of the comparison must not reveal how much of a guess was right.
  if (!proof || !in.ok() || !equals_in_constant_time(given, expected)) {
    return refuse(candidate, "the job token is wrong");
  }
  if (is_in(candidate.rank)) {
    return refuse(candidate,
                  "another process is rank " + std::to_string(candidate.rank) + " already");
  }
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, candidate.socket.get(), nullptr);
  // Its buffered input moves along: the rank may have sent its first message already.
  came_.push_back({candidate.rank, candidate.carries, std::move(rank_info),
                   std::move(candidate.socket), std::move(candidate.in)});
}

}  // namespace hora::collectives
