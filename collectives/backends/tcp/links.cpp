// SPDX-License-Identifier: Apache-2.0
// epoll is edge-triggered for connections, so each is added once and remembers its events. Bytes
// move only in a post or a wait: a rank waits for all that it sends, so at the end of an operation
// it is in the kernel's hands.
#include "collectives/backends/tcp/links.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives::tcp {

namespace {

// epoll's user data: a rank, or one of these, or an unauthenticated connection.
constexpr std::uint64_t kListener = 0xFFFF'FFFF;
constexpr std::uint64_t kStop = 0xFFFF'FFFE;
constexpr std::uint64_t kFirstPending = 0x1'0000'0000;

// Descriptors that the program may open besides.
constexpr std::size_t kOtherDescriptors = 1024;
// For a kernel that has no route to spare. Nothing moves meanwhile, and abort() has to wait, too.
constexpr std::chrono::seconds kKernelTimeout{1};
constexpr std::chrono::milliseconds kLook{50};  // at broken_off

epoll_event event_of(std::uint64_t number) {
  epoll_event event{};
  event.events = number == kListener ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  return event;
}

}  // namespace

Links::Links(int rank, std::chrono::milliseconds timeout, bool spin)
    : rank_(rank),
      timeout_(timeout),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(epoll_.get(), kFirstPending, [this](std::int64_t their_rank, os::Fd socket) {
        let_in(their_rank, std::move(socket));
      }) {
  spinner_.enable(spin);
}

Result<Contact> Links::listen(const IpAddress& address) {
  if (!epoll_.valid() || !stop_.valid()) return errno_error(errno, "creating an epoll instance");
  auto contact = listener_.open(address);
  if (!contact) return contact;
  HORA_TRY(watch(listener_.fd(), kListener));
  HORA_TRY(watch(stop_.get(), kStop));
  return contact;
}

// A place for each rank, and a connection only for those that this one has to do with. They may
// come to be all, for each of which it needs a descriptor.
void Links::learn(std::vector<Contact> contacts) {
  contacts_ = std::move(contacts);
  peers_.resize(contacts_.size());
  os::raise_file_limit(peers_.size() + Listener::kMostPending + kOtherDescriptors);
}

void Links::begin(const std::vector<int>& ranks) {
  for (const int rank : ranks) reach(rank);
}

Status Links::meet(const std::vector<int>& ranks, const std::function<bool()>& broken_off) {
  const Deadline deadline = Clock::now() + timeout_;
  if (failure_.empty()) begin(ranks);
  while (true) {
    move_all();
    if (!failure_.empty()) return make_error(ErrorCode::kFailed, failure_);
    const auto missing =
        std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return !is_met(rank); });
    if (missing == ranks.end()) return Ok{};
    if (broken_off()) return make_error(ErrorCode::kInterrupted, "the job is ending");
    const auto now = Clock::now();
    if (now >= deadline) {
      return make_error(ErrorCode::kTimedOut, "no connection to rank " + std::to_string(*missing) +
                                                  " within " +
                                                  std::to_string(timeout_.count() / 1000) + " s");
    }
    take_events(os::milliseconds_until(std::min(deadline, now + kLook)));
  }
}

// Whether the greeting has gone out, or come in.
bool Links::is_met(int rank) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  return peer != nullptr && peer->connection.is_open() && peer->connection.is_idle();
}

PeerLinks::Ticket Links::post_send(int rank, std::uint64_t tag, const void* data,
                                   std::size_t bytes) noexcept {
  // Nothing writes through it.
  return post(rank, tag, static_cast<char*>(const_cast<void*>(data)), bytes, true);
}

PeerLinks::Ticket Links::post_receive(int rank, std::uint64_t tag, void* data,
                                      std::size_t bytes) noexcept {
  return post(rank, tag, static_cast<char*>(data), bytes, false);
}

PeerLinks::Ticket Links::post(int rank, std::uint64_t tag, char* data, std::size_t bytes,
                              bool is_send) noexcept {
  if (!failure_.empty()) return 0;
  try {
    Peer& peer = reach(rank);
    if (free_.empty()) {
      transfers_.emplace_back();
      free_.push_back(transfers_.size());
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    Transfer& transfer = transfers_[ticket - 1];
    transfer = {tag, data, bytes};
    if (is_send) {
      peer.connection.send(transfer);
    } else {
      peer.connection.receive(transfer);
    }
    // The kernel may have room at once, and then the bytes travel while the caller posts the rest.
    // A failure shows in the next wait.
    if (is_send) static_cast<void>(peer.connection.move());
    return ticket;
  } catch (const std::exception& thrown) {
    fail(thrown.what());
    return 0;
  }
}

// The connection to that rank, which begins with the first use.
Links::Peer& Links::reach(int rank) {
  std::unique_ptr<Peer>& place = peers_[static_cast<std::size_t>(rank)];
  if (place == nullptr) {
    place = std::make_unique<Peer>();
    place->rank = rank;
    // The other way round, that rank connects when it comes to use it.
    if (rank < rank_) {
      if (Status begun = begin_to_connect(*place); !begun) fail(begun.error().message);
    }
  }
  if (!place->active) active_.push_back(place.get());
  place->active = true;
  return *place;
}

// Never waits for the other rank: what that one needs to go on may still have to be sent from here.
// Its kernel accepts the connection even while the rank itself is busy elsewhere.
Status Links::begin_to_connect(Peer& peer) {
  const auto now = Clock::now();
  peer.give_up_at = now + timeout_;
  auto socket = net::begin_connect_tcp(contacts_[static_cast<std::size_t>(peer.rank)].where,
                                       std::min(peer.give_up_at, now + kKernelTimeout));
  if (!socket) return std::move(socket).error();
  peer.connecting = std::move(*socket);
  keep_alive(peer.connecting.get());
  return watch(peer.connecting.get(), static_cast<std::uint64_t>(peer.rank));
}

// The socket is writable, or has failed.
void Links::finish_connecting(Peer& peer) {
  const Contact& contact = contacts_[static_cast<std::size_t>(peer.rank)];
  if (Status done = net::end_connect_tcp(peer.connecting.get(), contact.where); !done) {
    return fail_to_reach(peer.rank,
                         "rank " + std::to_string(peer.rank) + ": " + done.error().message);
  }
  const Greeting greeting{.rank = rank_, .key = contact.key};
  peer.give_up_at = Deadline::max();
  peer.connection.open(std::move(peer.connecting),
                       {reinterpret_cast<const char*>(&greeting), sizeof greeting});
}

bool Links::wait(Ticket ticket, ErrorText& error) noexcept {
  try {
    // A post that failed has said why. Otherwise the caller wants to end all transfers.
    if (ticket == 0) fail("all transfers were given up");
    while (failure_.empty() && !transfers_[ticket - 1].done) advance(transfers_[ticket - 1]);
    if (failure_.empty()) free_.push_back(ticket);
  } catch (const std::exception& thrown) {
    fail(thrown.what());
  }
  error.unreached = unreached_;
  return failure_.empty() || error.set("%s", failure_.c_str());
}

// Moves what can be moved at this moment, and then waits until there is more. That is done for all
// transfers, whichever is awaited: the peer may wait for another one.
void Links::advance(const Transfer& awaited) {
  if (aborted_.load(std::memory_order_acquire)) return fail("the job is ending");
  move_all();
  if (!failure_.empty() || awaited.done) return;
  if (!spinner_.until([&] { return take_events(0); })) {
    take_events(os::milliseconds_until(next_deadline()));
  }
  check_deadlines();
}

void Links::move_all() {
  for (std::size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    if (!peer.connection.move()) {
      // Also if another one is awaited, which may never come: this names the rank that is the
      // cause.
      return fail("the connection to rank " + std::to_string(peer.rank) +
                  " has ended: " + peer.connection.failure());
    }
    if (!peer.connection.is_idle() || !peer.connection.is_open()) {
      ++i;
      continue;
    }
    peer.active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
}

// Whether there were any.
bool Links::take_events(int timeout_ms) {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = events[i].data.u64;
    if (number == kStop) continue;  // advance() looks at aborted_
    if (number == kListener) {
      const Status accepted = listener_.accept_some(peers_.size());
      if (!accepted) fail("accepting another rank: " + accepted.error().message);
    } else if (number >= kFirstPending) {
      listener_.read(number);
    } else {
      Peer& peer = *peers_[number];
      if (peer.connecting.valid()) finish_connecting(peer);
      // A connection that is not in use keeps its events for later.
      peer.connection.note_events(events[i].events);
    }
  }
  return count > 0;
}

// Only to connect has a limit. How long an operation may take is for the runtime to say, which
// watches the ranks and calls abort().
Deadline Links::next_deadline() const {
  Deadline next = Deadline::max();
  for (const Peer* peer : active_) next = std::min(next, peer->give_up_at);
  return next;
}

void Links::check_deadlines() {
  if (next_deadline() == Deadline::max()) return;
  const auto now = Clock::now();
  for (const Peer* peer : active_) {
    if (peer->give_up_at > now) continue;
    return fail_to_reach(
        peer->rank, "rank " + std::to_string(peer->rank) + " does not answer at " +
                        format_endpoint(contacts_[static_cast<std::size_t>(peer->rank)].where) +
                        " for " + std::to_string(timeout_.count() / 1000) + " s");
  }
}

// If it is a rank that is to connect here and has not.
void Links::let_in(std::int64_t rank, os::Fd socket) {
  if (rank <= rank_ || rank >= static_cast<std::int64_t>(peers_.size())) return;
  std::unique_ptr<Peer>& place = peers_[static_cast<std::size_t>(rank)];
  if (place == nullptr) place = std::make_unique<Peer>();
  place->rank = static_cast<int>(rank);
  if (place->connection.is_open()) return;
  epoll_event event = event_of(static_cast<std::uint64_t>(rank));
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.get(), &event) != 0) {
    return fail(errno_error(errno, "watching a connection").message);
  }
  // The messages that follow the greeting may be there already: open() assumes that they are.
  place->connection.open(std::move(socket), {});
}

// Once for each socket: closing it takes it out again.
Status Links::watch(int fd, std::uint64_t number) {
  epoll_event event = event_of(number);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Ok{};
  return errno_error(errno, "watching a connection");
}

void Links::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // EAGAIN: the counter is full, so it has been rung.
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
}

void Links::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->connection.forget_transfers();
  }
  active_.clear();
}

void Links::fail_to_reach(int rank, std::string why) {
  if (failure_.empty()) unreached_ = rank;
  fail(std::move(why));
}

}  // namespace hora::collectives::tcp
