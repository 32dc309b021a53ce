// SPDX-License-Identifier: Apache-2.0
// How the control connections come about. Rank 0 listens; anybody may connect. Each side proves
// that it knows the token before the other believes anything, and the token itself is never sent.
// Rank 0 reads from all candidates in one poll() loop, so a client that stalls delays nobody.
#include "collectives/control/tcp_control.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>

#include "collectives/control/handshake.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/file_limit.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/would_block.h"

namespace hora::collectives {

namespace {

// worker: HELLO version job rank size nonce          coordinator: CHALLENGE nonce proof
// worker: PROOF proof rank_info                   coordinator: WELCOME all rank_infos
// Either side may answer REFUSED text instead and hang up.
enum MessageKind : std::uint8_t { kHello = 1, kChallenge, kProof, kWelcome, kRefused };

constexpr std::uint64_t kProtocolVersion = 2;
// A port scanner or an HTTP client fails here, before any memory is spent on it.
constexpr std::string_view kMagic = "hora control";
constexpr std::size_t kNonceBytes = 16;
constexpr std::uint32_t kLargestHello = 4096;  // from whoever connects
constexpr std::uint32_t kLargestProof = 1 << 20;
// The limit of unauthenticated connections in addition to those of the ranks; it bounds the memory
// and descriptors that outsiders can take.
constexpr std::size_t kMaxUnauthenticated = 256;
constexpr std::size_t kOtherDescriptors = 1024;  // what the program may open besides
constexpr std::size_t kFewestDescriptors = 8;    // and what it has for sure
// After this many, the accepted connections and the clock get their turn: connections may arrive
// faster than they can be accepted.
constexpr int kAcceptsPerTurn = 64;
constexpr int kWordsPerTurn = 256;  // and from as many candidates it is read between two turns

std::string refusal(std::string_view text) {
  WireWriter out;
  out.u8(kRefused);
  out.text(text);
  return out.take();
}

// A connection that has not finished its handshake.
struct Candidate {
  os::Fd socket;
  FrameBuffer in;
  std::string out;  // what the kernel had no room for yet
  int rank = -1;    // once it has said so
  std::string worker_nonce;
  std::string own_nonce;
  bool over = false;
};

// In the order in which they came; each has a number, which is not used again.
using Candidates = std::map<std::uint64_t, Candidate>;
constexpr std::uint64_t kListener = 0;

constexpr std::chrono::milliseconds kVoidPause{500};  // between two questions whether it is void
constexpr std::chrono::milliseconds kRoomPause{10};   // until the kernel may have room again

class Gathering {
 public:
  Gathering(os::Fd listener, const ControlIdentity& self, std::function<bool()> is_void)
      : listener_(std::move(listener)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        self_(self),
        is_void_(std::move(is_void)),
        joined_(static_cast<std::size_t>(self.size)) {}

  Result<ControlWorld> run(Deadline deadline) {
    auto world = gather(deadline);
    if (!world) {  // those who have come learn why they waited in vain
      const std::string bytes = refusal(world.error().message);
      for (Candidate& each : joined_) {
        if (each.socket.valid()) say(each, bytes);
      }
    }
    return world;
  }

 private:
  Result<ControlWorld> gather(Deadline deadline) {
    // Indexed by rank; ranks arrive in any order.
    world_.rank_infos.assign(static_cast<std::size_t>(self_.size), {});
    world_.rank_infos[0] = self_.rank_info;
    HORA_TRY(make_room());
    auto channel = std::make_unique<TcpChannel>();
    HORA_TRY(watch(listener_, kListener));
    while (count_ < self_.size - 1) {
      auto ready = wait(deadline);
      if (!ready) return std::move(ready).error();
      for (const std::uint64_t number : *ready) {
        // Whoever was ready may have been turned away meanwhile.
        const auto candidate = candidates_.find(number);
        if (candidate != candidates_.end()) converse(candidate);
      }
      if (waits_for_room_) push_all();
      HORA_TRY(accept_some());
    }
    WireWriter welcome;
    welcome.u8(kWelcome);
    welcome.texts(world_.rank_infos);
    std::vector<std::int32_t> others;
    for (int rank = 1; rank < self_.size; ++rank) {
      Candidate& candidate = joined_[static_cast<std::size_t>(rank)];
      HORA_TRY(channel->add_peer(rank, std::move(candidate.socket), std::move(candidate.in)));
      others.push_back(rank);
    }
    channel->send_to_all(others, welcome.take());
    // Every rank must have its welcome before rank 0 goes on to the first exchange.
    HORA_TRY(channel->flush(-1, deadline));
    world_.channel = std::move(channel);
    return std::move(world_);
  }

  Error missing_ranks() const {
    std::string missing;
    int listed = 0;
    for (int rank = 1; rank < self_.size; ++rank) {
      if (joined_[static_cast<std::size_t>(rank)].socket.valid()) continue;
      // A message for people; a large job may miss thousands.
      if (++listed > 16) {
        missing += ", ...";
        break;
      }
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return make_error(ErrorCode::kTimedOut,
                      "timed out waiting for ranks " + missing +
                          " to start (HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit)");
  }

  // A descriptor for each rank, in a program that has its own. Its limit is often 1024.
  Status make_room() const {
    const auto ranks = static_cast<std::size_t>(self_.size);
    const std::size_t limit = os::raise_file_limit(ranks + kMaxUnauthenticated + kOtherDescriptors);
    if (limit >= ranks + kFewestDescriptors) return Ok{};
    return make_error(ErrorCode::kUnavailable,
                      "rank 0 needs a descriptor for each of " + std::to_string(ranks) +
                          " ranks, and may have " + std::to_string(limit) +
                          " in all: raise the hard limit on its host (ulimit -Hn; LimitNOFILE of "
                          "the service that starts it)");
  }

  Status watch(const os::Fd& socket, std::uint64_t number) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = number;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
      return errno_error(errno, "watching the connections of the other ranks");
    }
    return Ok{};
  }

  // The numbers of the candidates that have something to say.
  Result<std::vector<std::uint64_t>> wait(Deadline deadline) {
    const auto now = Clock::now();
    if (now >= deadline) return missing_ranks();
    // By the clock, whatever unauthenticated clients send meanwhile.
    if (is_void_ && now >= next_void_look_) {
      next_void_look_ = now + kVoidPause;
      if (is_void_()) {
        return make_error(ErrorCode::kUnavailable, "some ranks were lost before all had connected");
      }
    }
    auto until = is_void_ ? std::min(deadline, next_void_look_) : deadline;
    if (waits_for_room_) until = std::min(until, now + kRoomPause);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    epoll_event events[kWordsPerTurn];
    const int count =
        ::epoll_wait(epoll_.get(), events, kWordsPerTurn, static_cast<int>(left.count()));
    if (count < 0 && errno != EINTR) return errno_error(errno, "waiting for the other ranks");
    std::vector<std::uint64_t> ready;
    for (int i = 0; i < count; ++i) ready.push_back(events[i].data.u64);
    return ready;
  }

  Status accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      auto accepted = net::accept_tcp(listener_.get());
      if (!accepted) {
        // No descriptor or memory is left: an unauthenticated connection has to make room.
        if (turn_one_away()) continue;
        return std::move(accepted).error().with_context("accepting a rank");
      }
      if (!accepted->has_value()) return Ok{};
      if (candidates_.size() >= static_cast<std::size_t>(self_.size) + kMaxUnauthenticated)
        turn_one_away();
      Candidate candidate;
      candidate.socket = std::move((*accepted)->fd);
      HORA_TRY(watch(candidate.socket, next_number_));
      candidates_.emplace(next_number_++, std::move(candidate));
    }
    return Ok{};
  }

  // Closes the connection that has waited longest, preferably one that has sent nothing: a rank
  // identifies itself as soon as it is connected.
  bool turn_one_away() {
    if (candidates_.empty()) return false;
    auto leaves = candidates_.begin();
    for (auto each = candidates_.begin(); each != candidates_.end(); ++each) {
      Candidate& candidate = each->second;
      // Its word may have come meanwhile.
      if (candidate.rank < 0 && !candidate.over) read_from(candidate);
      if (candidate.rank >= 0 && !candidate.over) continue;
      leaves = each;
      break;
    }
    candidates_.erase(leaves);
    return true;
  }

  void converse(Candidates::iterator each) {
    push(each->second);
    if (!each->second.over) read_from(each->second);
    if (each->second.over) candidates_.erase(each);
  }

  // Whoever the kernel had no room for.
  void push_all() {
    waits_for_room_ = false;
    for (auto& [number, candidate] : candidates_) push(candidate);
    std::erase_if(candidates_, [](const auto& each) { return each.second.over; });
  }

  void say(Candidate& candidate, std::string_view message) {
    append_frame(candidate.out, message);
    push(candidate);
  }

  // A few hundred bytes on a fresh connection: the kernel takes them at once, unless it is short of
  // memory.
  void push(Candidate& candidate) {
    std::string& out = candidate.out;
    while (!candidate.over && !out.empty()) {
      const ssize_t sent =
          ::send(candidate.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        out.erase(0, static_cast<std::size_t>(sent));
      } else if (os::would_block(errno)) {
        waits_for_room_ = true;
        return;
      } else if (errno != EINTR) {
        candidate.over = true;
      }
    }
  }

  void refuse(Candidate& candidate, std::string_view why) {
    say(candidate, refusal(why));
    candidate.over = true;
  }

  void read_from(Candidate& candidate) {
    char buffer[16384];
    while (!candidate.over) {
      const ssize_t count = ::recv(candidate.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (count <= 0) {
        candidate.over = true;
        return;
      }
      candidate.in.append({buffer, static_cast<std::size_t>(count)});
      take_messages(candidate);  // at once: nobody may make us keep more than a message
    }
  }

  void take_messages(Candidate& candidate) {
    while (!candidate.over) {
      // Before the hello anybody may be speaking, so very little is accepted.
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
    if (candidate.in.broken()) candidate.over = true;
  }

  void on_hello(Candidate& candidate, std::string_view bytes) {
    WireReader in(bytes);
    const bool hello = in.u8() == kHello && in.text() == kMagic;
    const std::uint64_t version = in.varint();
    const std::string job = in.text();
    const std::int64_t rank = in.integer();
    const std::int64_t size = in.integer();
    candidate.worker_nonce = in.text();
    if (!hello || !in.ok() || candidate.worker_nonce.size() != kNonceBytes) {
      candidate.over = true;  // not one of us
      return;
    }
    if (version != kProtocolVersion) {
      return refuse(candidate, "the ranks run different versions of libhora: control protocol " +
                                   std::to_string(version) + " on this rank, " +
                                   std::to_string(kProtocolVersion) + " on rank 0");
    }
    // Ports are reused: a worker may have read the address of a job that has ended.
    if (job != self_.job) return refuse(candidate, "rank 0 at this address belongs to another job");
    if (size != self_.size || rank < 1 || rank >= size) {
      return refuse(candidate, "this rank is " + std::to_string(rank) + " of " +
                                   std::to_string(size) + ", but rank 0 is in a world of " +
                                   std::to_string(self_.size));
    }
    if (joined_[static_cast<std::size_t>(rank)].socket.valid()) {
      return refuse(candidate, "another process is rank " + std::to_string(rank) + " already");
    }
    candidate.rank = static_cast<int>(rank);
    // A fresh number from each side, both in both proofs: neither proof can be replayed or
    // reflected (the role is part of it).
    candidate.own_nonce = os::random_bytes(kNonceBytes);
    WireWriter out;
    out.u8(kChallenge);
    out.text(candidate.own_nonce);
    out.text(handshake_proof(self_.token, "coordinator", candidate.worker_nonce,
                             candidate.own_nonce, candidate.rank));
    say(candidate, out.take());
  }

  void on_proof(Candidate& candidate, std::string_view bytes) {
    WireReader in(bytes);
    const bool proof = in.u8() == kProof;
    const std::string given = in.text();
    std::string rank_info = in.text();
    const std::string expected = handshake_proof(self_.token, "worker", candidate.worker_nonce,
                                                 candidate.own_nonce, candidate.rank);
    // The time of the comparison must not tell how much of a guess was right.
    if (!proof || !in.ok() || !equals_in_constant_time(given, expected)) {
      return refuse(candidate, "the job token is wrong");
    }
    const auto at = static_cast<std::size_t>(candidate.rank);
    if (joined_[at].socket.valid()) {
      return refuse(candidate, "another process is rank " + std::to_string(at) + " already");
    }
    world_.rank_infos[at] = std::move(rank_info);
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, candidate.socket.get(), nullptr);
    // Its buffered input moves along: the rank may have sent its first message already.
    joined_[at] = std::move(candidate);
    candidate.over = true;
    ++count_;
  }

  os::Fd listener_;
  os::Fd epoll_;
  const ControlIdentity& self_;
  std::function<bool()> is_void_;
  Clock::time_point next_void_look_ = Clock::now() + kVoidPause;
  Candidates candidates_;
  std::uint64_t next_number_ = kListener + 1;
  bool waits_for_room_ = false;    // some candidate's `out` is not empty
  std::vector<Candidate> joined_;  // by rank
  int count_ = 0;
  ControlWorld world_;
};

// The worker's side: blocking reads and writes, because it has nothing else to do.
class Conversation {
 public:
  Conversation(os::Fd socket, Deadline deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}

  Status say(std::string_view message) {
    std::string frame;
    append_frame(frame, message);
    return net::send_all(socket_.get(), frame, deadline_);
  }

  Result<std::string> hear() {
    while (true) {
      if (std::optional<std::string> message = in_.next()) return std::move(*message);
      if (in_.broken()) return make_error(ErrorCode::kFailed, "rank 0 sent a malformed message");
      char buffer[16384];
      auto count = net::receive_some(socket_.get(), buffer, sizeof buffer, deadline_);
      if (!count) return std::move(count).error();
      if (*count == 0) return make_error(ErrorCode::kFailed, "rank 0 closed the connection");
      in_.append({buffer, *count});
    }
  }

  os::Fd take_socket() { return std::move(socket_); }
  FrameBuffer take_rest() { return std::move(in_); }

 private:
  os::Fd socket_;
  Deadline deadline_;
  FrameBuffer in_;
};

// The reader of a message of the given kind, or the refusal as an error.
Result<WireReader> expect(std::string_view bytes, MessageKind kind) {
  WireReader in(bytes);
  const std::uint8_t found = in.u8();
  if (found == kRefused) {
    return make_error(ErrorCode::kDenied, "rank 0 refused this rank: " + in.text());
  }
  if (found != kind) return make_error(ErrorCode::kFailed, "rank 0 sent an unexpected message");
  return in;
}

Result<ControlWorld> converse(Conversation& talk, const ControlIdentity& self) {
  const std::string nonce = os::random_bytes(kNonceBytes);
  WireWriter hello;
  hello.u8(kHello);
  hello.text(kMagic);
  hello.varint(kProtocolVersion);
  hello.text(self.job);
  hello.integer(self.rank);
  hello.integer(self.size);
  hello.text(nonce);
  HORA_TRY(talk.say(hello.take()));

  auto challenge = talk.hear();
  if (!challenge) return std::move(challenge).error();
  auto in = expect(*challenge, kChallenge);
  if (!in) return std::move(in).error();
  const std::string their_nonce = in->text();
  const std::string their_proof = in->text();
  if (!in->ok() ||
      !equals_in_constant_time(
          their_proof, handshake_proof(self.token, "coordinator", nonce, their_nonce, self.rank))) {
    return make_error(ErrorCode::kDenied,
                      "the process at rank 0's address does not know the job token");
  }
  WireWriter proof;
  proof.u8(kProof);
  proof.text(handshake_proof(self.token, "worker", nonce, their_nonce, self.rank));
  proof.text(self.rank_info);
  HORA_TRY(talk.say(proof.take()));

  auto welcome = talk.hear();
  if (!welcome) return std::move(welcome).error();
  in = expect(*welcome, kWelcome);
  if (!in) return std::move(in).error();
  ControlWorld world;
  world.rank_infos = in->texts(static_cast<std::size_t>(self.size));
  if (!in->ok() || world.rank_infos.size() != static_cast<std::size_t>(self.size))
    return make_error(ErrorCode::kFailed, "rank 0 sent a malformed welcome");
  return world;
}

}  // namespace

Result<os::Fd> open_control_listener(const IpAddress& address) {
  return net::listen_tcp(Endpoint{address, 0});
}

Result<ControlWorld> gather_workers(os::Fd listener, const ControlIdentity& self, Deadline deadline,
                                    std::function<bool()> is_void) {
  return Gathering(std::move(listener), self, std::move(is_void)).run(deadline);
}

Result<ControlWorld> join_coordinator(const Endpoint& coordinator, const ControlIdentity& self,
                                      Deadline deadline) {
  const std::string where = "connecting to rank 0 at " + format_endpoint(coordinator);
  auto socket = net::connect_tcp(coordinator, deadline);
  if (!socket) return std::move(socket).error().with_context(where);
  // From the start: rank 0's host may vanish during the handshake.
  watch_for_silence(socket->get());
  Conversation talk(std::move(*socket), deadline);
  auto world = converse(talk, self);
  if (!world) return std::move(world).error().with_context(where);
  auto channel = std::make_unique<TcpChannel>();
  HORA_TRY(channel->add_peer(0, talk.take_socket(), talk.take_rest()));
  world->channel = std::move(channel);
  return world;
}

}  // namespace hora::collectives
