// SPDX-License-Identifier: Apache-2.0
// How the control connections come about: the side that connects, and how rank 0 waits for all.
#include "collectives/control/tcp_control.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/control/door.h"
#include "collectives/control/messages.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/control/tree_node.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/random.h"

namespace hora::collectives {

using namespace meeting;

namespace {

constexpr std::size_t kOtherDescriptors = 1024;       // what the program may open besides
constexpr std::size_t kFewestDescriptors = 8;         // and what it has for sure
constexpr std::chrono::milliseconds kVoidPause{500};  // between two questions whether it is void

// The ranks that have come to rank 0, and until when it waits for the others.
class Attendees {
 public:
  Attendees(const ControlIdentity& self, AbsentReport call, Deadline deadline)
      : size_(self.size),
        call_(std::move(call)),
        deadline_(deadline),
        has_come_(static_cast<std::size_t>(self.size)),
        rank_infos_(static_cast<std::size_t>(self.size)) {
    enter(0, self.rank_info);
  }

  void enter(int rank, std::string rank_info) {
    const auto at = static_cast<std::size_t>(rank);
    if (has_come_[at]) return;
    has_come_[at] = true;
    rank_infos_[at] = std::move(rank_info);
    ++count_;
  }
  bool has_come(int rank) const { return has_come_[static_cast<std::size_t>(rank)]; }
  bool complete() const { return count_ == size_; }

  // The next moment to ask again.
  Result<Deadline> may_wait() {
    const auto now = Clock::now();
    if (now >= deadline_) return give_up();
    if (!call_.is_void) return deadline_;
    // By the clock, whatever unauthenticated clients send meanwhile.
    if (now >= next_void_look_) {
      next_void_look_ = now + kVoidPause;
      if (call_.is_void()) {
        return make_error(ErrorCode::kUnavailable, "some ranks were lost before all had connected");
      }
    }
    return std::min(deadline_, next_void_look_);
  }

  std::string welcome() const {
    WireWriter out;
    out.u8(kWelcome);
    out.texts(rank_infos_);
    return out.take();
  }
  std::vector<std::string> take() { return std::move(rank_infos_); }

 private:
  Error give_up() const {
    std::vector<int> unseen;
    std::vector<std::string> names;
    for (int rank = 1; rank < size_; ++rank) {
      if (has_come(rank)) continue;
      unseen.push_back(rank);
      names.push_back(std::to_string(rank));
    }
    if (call_.give_up) return call_.give_up(unseen);
    return make_error(ErrorCode::kTimedOut, std::string("timed out waiting for ") +
                                                (names.size() == 1 ? "rank " : "ranks ") +
                                                join(names, ", "));
  }

  int size_;
  AbsentReport call_;
  Deadline deadline_;
  Clock::time_point next_void_look_ = Clock::now() + kVoidPause;
  std::vector<char> has_come_;  // by rank
  std::vector<std::string> rank_infos_;
  int count_ = 0;
};

std::vector<std::int32_t> all_but_rank_0(int size) {
  std::vector<std::int32_t> others(static_cast<std::size_t>(size) - 1);
  std::iota(others.begin(), others.end(), 1);
  return others;
}

// A star: a connection of each rank.
class Gathering {
 public:
  Gathering(os::Fd listener, const ControlIdentity& self, Attendees roll)
      : self_(self),
        roll_(std::move(roll)),
        door_(std::move(listener), self, false, [this](int rank) { return roll_.has_come(rank); }),
        joined_(static_cast<std::size_t>(self.size)) {}

  Result<ControlWorld> run(Deadline deadline) {
    auto world = gather(deadline);
    if (!world) {  // the ranks that have come learn why the wait failed
      std::string frame;
      append_frame(frame, refusal(world.error().message));
      for (const PendingPeer& each : joined_) {
        if (each.socket.valid())
          static_cast<void>(net::send_all(each.socket.get(), frame, kNoWait));
      }
    }
    return world;
  }

 private:
  Result<ControlWorld> gather(Deadline deadline) {
    HORA_TRY(make_room());
    auto channel =
        std::make_unique<TcpChannel>();  // before other clients may take the last descriptor
    HORA_TRY(door_.open());
    while (!roll_.complete()) {
      const auto until = roll_.may_wait();
      if (!until) return until.error();
      auto came = door_.look(*until);
      if (!came) return std::move(came).error();
      for (PendingPeer& each : *came) {
        roll_.enter(each.rank, std::move(each.rank_info));
        joined_[static_cast<std::size_t>(each.rank)] = std::move(each);
      }
    }
    const std::vector<std::int32_t> others = all_but_rank_0(self_.size);
    for (const std::int32_t rank : others) {
      PendingPeer& each = joined_[static_cast<std::size_t>(rank)];
      HORA_TRY(channel->add_peer(rank, std::move(each.socket), std::move(each.in)));
    }
    channel->send_to_all(others, roll_.welcome());
    // Every rank must have its welcome before rank 0 goes on to the first exchange.
    HORA_TRY(channel->flush(-1, deadline));
    return ControlWorld{std::move(channel), roll_.take()};
  }

  // A descriptor for each rank, in a program that has its own. Its limit is often 1024.
  Status make_room() const {
    const auto ranks = static_cast<std::size_t>(self_.size);
    const std::size_t limit = os::raise_file_limit(ranks + kMaxUnauthenticated + kOtherDescriptors);
    if (limit >= ranks + kFewestDescriptors) return Ok{};
    return Error{ErrorCode::kUnavailable,
                 "rank 0 needs a descriptor for each of " + std::to_string(ranks) +
                     " ranks, and may have " + std::to_string(limit) +
                     " in all: raise the hard limit on its host (ulimit -Hn; LimitNOFILE of "
                     "the service that starts it)",
                 EMFILE};
  }

  const ControlIdentity& self_;
  Attendees roll_;
  HandshakeAcceptor door_;
  std::vector<PendingPeer> joined_;  // by rank
};

Status make_pair(os::Fd& one, os::Fd& other) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return errno_error(errno, "creating a pair of sockets");
  }
  one = os::Fd(pair[0]);
  other = os::Fd(pair[1]);
  return Ok{};
}

// A tree: rank 0's node (tree_node.h) gets the messages of all ranks, directly or from the nodes
// there.
class TreeGathering {
 public:
  TreeGathering(const ControlIdentity& self, Attendees roll)
      : self_(self), roll_(std::move(roll)) {}

  Result<ControlWorld> run(os::Fd listener, Deadline deadline) {
    TreeNode::Start start;
    start.self = self_;
    start.listener = std::move(listener);
    HORA_TRY(make_pair(socket_, start.above));
    HORA_TRY(make_pair(alarm_, start.alarm));
    auto channel =
        std::make_unique<TcpChannel>();  // before other clients may take the last descriptor
    auto node = TreeNode::start(std::move(start));
    if (!node) return std::move(node).error();
    const Status gathered = gather();
    const std::string text = gathered ? roll_.welcome() : refusal(gathered.error().message);
    std::string frame;
    append_frame(frame, passage_to_all(text));
    const Status reported = net::send_all(socket_.get(), frame, deadline);
    if (!gathered) {
      socket_.reset();  // before the node, which passes on its message
      return gathered.error();
    }
    HORA_TRY(reported);
    HORA_TRY(channel->add_tree(self_.size, std::move(socket_), std::move(in_), std::move(early_),
                               std::move(alarm_)));
    channel->keep(std::move(*node));
    return ControlWorld{std::move(channel), roll_.take()};
  }

 private:
  Status gather() {
    while (!roll_.complete()) {
      const auto until = roll_.may_wait();
      if (!until) return until.error();
      if (Status ready = net::wait_readable(socket_.get(), *until, "the other ranks"); !ready) {
        if (ready.error().code == ErrorCode::kTimedOut)
          continue;  // may_wait() says what is missing
        return ready;
      }
      char buffer[65536];
      auto count = net::receive_some(socket_.get(), buffer, sizeof buffer, *until);
      if (!count) return std::move(count).error();
      if (*count == 0) return make_error(ErrorCode::kFailed, "the node of rank 0 has ended");
      in_.append({buffer, *count});
      while (std::optional<std::string> message = in_.next()) {
        auto words = decode_words(*message, self_.size);
        if (!words) return make_error(ErrorCode::kFailed, "a rank sent a malformed message");
        for (Word& word : *words) take(std::move(word));
      }
    }
    return Ok{};
  }

  void take(Word word) {
    // Messages of a rank after it has joined are for the channel.
    if (word.kind != Word::kJoined) return early_.push_back(std::move(word));
    for (const std::int32_t rank : word.ranks) roll_.enter(rank, word.text);
  }

  const ControlIdentity& self_;
  Attendees roll_;
  os::Fd socket_;
  os::Fd alarm_;
  FrameBuffer in_;
  std::vector<Word> early_;
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

  Result<std::string> receive() { return receive(deadline_); }
  Result<std::string> receive(Deadline until) {
    while (true) {
      if (std::optional<std::string> message = in_.next()) return std::move(*message);
      if (in_.broken()) return make_error(ErrorCode::kFailed, "rank 0 sent a malformed message");
      char buffer[16384];
      auto count = net::receive_some(socket_.get(), buffer, sizeof buffer, until);
      if (!count) return std::move(count).error();
      if (*count == 0) return make_error(ErrorCode::kFailed, "rank 0 closed the connection");
      in_.append({buffer, *count});
    }
  }

  void wait_until(Deadline deadline) { deadline_ = std::max(deadline_, deadline); }
  Deadline deadline() const { return deadline_; }
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

// Tried until then: first for a short time, and then to the end, after on_late().
template <typename Attempt>
auto wait_for_door(const WayToRank0& way, Deadline deadline, Attempt attempt) {
  const Deadline late = way.on_late ? Clock::now() + way.late_after : deadline;
  auto result = attempt(std::min(late, deadline));
  if (result || result.error().code != ErrorCode::kTimedOut || deadline <= late) return result;
  way.on_late();
  return attempt(deadline);
}

// Comes in at the door of another rank, and returns that one's number.
Result<int> prove(Conversation& talk, const ControlIdentity& self, const WayToRank0& way) {
  const std::string nonce = os::random_bytes(kNonceBytes);
  WireWriter hello;
  hello.u8(kHello);
  hello.text(kMagic);
  hello.varint(kProtocolVersion);
  hello.text(self.job);
  hello.integer(self.rank);
  hello.integer(self.size);
  hello.text(nonce);
  hello.u8(way.listener.valid() ? 1 : 0);  // it carries the messages of others, too
  HORA_TRY(talk.say(hello.take()));

  auto challenge =
      wait_for_door(way, talk.deadline(), [&](Deadline until) { return talk.receive(until); });
  if (!challenge) return std::move(challenge).error();
  auto in = expect(*challenge, kChallenge);
  if (!in) return std::move(in).error();
  const std::string their_nonce = in->text();
  const std::string their_proof = in->text();
  const std::int64_t their_rank = in->integer();
  if (!in->ok() || their_rank < 0 || their_rank >= self.size ||
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
  talk.wait_until(Clock::now() + way.timeout);
  return static_cast<int>(their_rank);
}

// Waits for the welcome and returns the rank infos.
Result<std::vector<std::string>> receive_welcome(Conversation& talk, const ControlIdentity& self) {
  auto welcome = talk.receive();
  if (!welcome) return std::move(welcome).error();
  auto in = expect(*welcome, kWelcome);
  if (!in) return std::move(in).error();
  std::vector<std::string> rank_infos = in->texts(static_cast<std::size_t>(self.size));
  if (!in->ok() || rank_infos.size() != static_cast<std::size_t>(self.size))
    return make_error(ErrorCode::kFailed, "rank 0 sent a malformed welcome");
  return rank_infos;
}

// This rank's own node connects at its listener, and this rank gets its welcome from the node.
Result<ControlWorld> join_with_node(Conversation& talk, const ControlIdentity& self,
                                    WayToRank0 way) {
  const auto above = prove(talk, self, way);
  if (!above) return above.error();
  TreeNode::Start start;
  start.self = self;
  start.listener = std::move(way.listener);
  start.above = talk.take_socket();
  start.above_in = talk.take_rest();
  start.rank_above = *above;
  os::Fd own;
  HORA_TRY(make_pair(own, start.own));
  auto channel =
      std::make_unique<TcpChannel>();  // before other clients may take the last descriptor
  auto node = TreeNode::start(std::move(start));
  if (!node) return std::move(node).error();
  Conversation inside(std::move(own), talk.deadline());
  auto rank_infos = receive_welcome(inside, self);
  if (!rank_infos) {
    inside.take_socket().reset();  // before the node
    return std::move(rank_infos).error();
  }
  HORA_TRY(channel->add_way_to_rank_0(*above, inside.take_socket(), inside.take_rest()));
  channel->keep(std::move(*node));
  return ControlWorld{std::move(channel), std::move(*rank_infos)};
}

}  // namespace

Result<os::Fd> open_control_listener(const IpAddress& address) {
  return net::listen_tcp(Endpoint{address, 0});
}

Result<ControlWorld> gather_workers(os::Fd listener, const ControlIdentity& self, Deadline deadline,
                                    AbsentReport absent_report) {
  Attendees roll(self, std::move(absent_report), deadline);
  return Gathering(std::move(listener), self, std::move(roll)).run(deadline);
}

Result<ControlWorld> gather_tree(os::Fd listener, const ControlIdentity& self, Deadline deadline,
                                 AbsentReport absent_report) {
  Attendees roll(self, std::move(absent_report), deadline);
  return TreeGathering(self, std::move(roll)).run(std::move(listener), deadline);
}

Result<ControlWorld> join_tree(WayToRank0 way, const ControlIdentity& self, Deadline deadline) {
  const std::string where = "connecting to " + way.over + " at " + format_endpoint(way.where);
  auto socket = wait_for_door(way, deadline,
                              [&](Deadline until) { return net::connect_tcp(way.where, until); });
  if (!socket) {
    const bool refused = socket.error().code != ErrorCode::kTimedOut;
    if (way.on_no_connection) way.on_no_connection(refused);
    return std::move(socket).error().with_context(where);
  }
  // From the start: that host may vanish during the handshake.
  watch_for_silence(socket->get());
  Conversation talk(std::move(*socket), deadline);
  if (way.listener.valid()) {
    auto world = join_with_node(talk, self, std::move(way));
    return world ? std::move(world) : std::move(world).error().with_context(where);
  }
  const auto at_end = prove(talk, self, way);
  if (!at_end) return at_end.error().with_context(where);
  auto rank_infos = receive_welcome(talk, self);
  if (!rank_infos) return std::move(rank_infos).error().with_context(where);
  auto channel = std::make_unique<TcpChannel>();
  HORA_TRY(channel->add_way_to_rank_0(*at_end, talk.take_socket(), talk.take_rest()));
  return ControlWorld{std::move(channel), std::move(*rank_infos)};
}

}  // namespace hora::collectives
