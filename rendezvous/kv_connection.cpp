// SPDX-License-Identifier: Apache-2.0
// kOpen -> kParked while a request waits in the service -> kOpen. From kOpen, a reply without
// keep-alive leads to kClosing and, if the peer has sent more than was read, to kDraining: closing
// a socket over unread bytes makes the kernel send a reset, which can destroy the reply on its way.
#include "rendezvous/kv_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "rendezvous/http/writer.h"

namespace hora::rendezvous {

namespace {

constexpr std::string_view kServerName = "hora/" HORA_VERSION;
// How much a refused peer may send before the connection is cut. An unauthenticated client gets
// less.
constexpr std::uint64_t kMaxDrained = 16u << 20;
constexpr std::uint64_t kMaxDrainedUnauthenticated = 256u << 10;
// After this many, other connections get their turn.
constexpr int kRequestsPerTurn = 16;

}  // namespace

KvConnection::KvConnection(std::unique_ptr<net::Stream> stream, const IpAddress& peer,
                           KvService::ClientId id, KvConnectionContext& context)
    : stream_(std::move(stream)),
      peer_(peer),
      id_(id),
      context_(context),
      reader_(context.options.read_limits),
      known_(context.service.knows(peer)),
      last_active_(context.now) {}

// Gives back what the shared budget and the service hold for this connection, whatever its state.
KvConnection::~KvConnection() {
  set_charge(0);
  if (state_ == State::kParked) context_.service.forget(id_);
}

bool KvConnection::idle() const {
  return state_ == State::kOpen && !begun() && !has_output() && !has_more_;
}

// An unauthenticated client must take each reply before the next one is made, so that it costs one
// reply of memory at most. Others may have some megabytes in flight.
bool KvConnection::blocked() const {
  if (state_ == State::kParked) return true;
  return unauthenticated() ? has_output() : output_.pending() > context_.options.write_buffer_bytes;
}

std::uint32_t KvConnection::wanted_events() const {
  // Reading shows the end of the input. Only a parked connection is not read from and needs
  // EPOLLRDHUP; elsewhere epoll would report it over and over.
  std::uint32_t events = 0;
  if (state_ == State::kParked) events = input_pending_ ? EPOLLRDHUP : EPOLLRDHUP | EPOLLIN;
  const bool reads =
      (state_ == State::kOpen && !blocked() && !has_more_) || state_ == State::kDraining;
  if (reads && !input_ended_) events |= EPOLLIN;
  // The socket is writable at once, so this connection gets its next turn after all others that are
  // ready.
  if (has_output() || has_more_) events |= EPOLLOUT;
  return events;
}

KvConnection::Fate KvConnection::on_events(std::uint32_t epoll_events) {
  if ((epoll_events & (EPOLLERR | EPOLLHUP)) != 0) return Fate::kClose;
  if (state_ == State::kParked) {
    if ((epoll_events & EPOLLRDHUP) != 0) return Fate::kClose;  // no request waits any more
    // A request after the waiting one stays in the kernel until its turn.
    if ((epoll_events & EPOLLIN) != 0) input_pending_ = true;
  }
  if ((epoll_events & EPOLLOUT) != 0) {
    const bool was_held = blocked() || has_more_;
    if (flush() == Fate::kClose) return Fate::kClose;
    if (was_held && !blocked() && state_ == State::kOpen && !unread_.empty()) {
      return process(std::exchange(unread_, {}));
    }
  }
  if ((epoll_events & EPOLLIN) == 0 || has_more_) return Fate::kKeep;
  if (state_ == State::kDraining) return drain();
  return state_ == State::kOpen && !blocked() ? read() : Fate::kKeep;
}

KvConnection::Fate KvConnection::read() {
  std::vector<char>& scratch = context_.scratch;
  if (unread_.size() >= scratch.size() / 2) return Fate::kClose;  // the reader's limits forbid it
  std::copy(unread_.begin(), unread_.end(), scratch.begin());
  const std::size_t kept = unread_.size();
  const bool had_begun = begun();
  // One receive per turn. Under TLS this may also complete a handshake, which costs a signature.
  const ssize_t got = stream_->receive(scratch.data() + kept, room_after(kept));
  if (got < 0) {
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    // Some bytes of a handshake: the clock of a slow client starts here.
    if (later && !had_begun && begun()) message_start_ = context_.now;
    return later ? Fate::kKeep : Fate::kClose;
  }
  if (got == 0) {
    // A client may close its sending side after the request and still read the reply.
    input_ended_ = true;
    return has_output() ? Fate::kKeep : Fate::kClose;
  }
  context_.service.connections().received_bytes += static_cast<std::uint64_t>(got);
  last_active_ = context_.now;
  unread_.clear();
  return process({scratch.data(), kept + static_cast<std::size_t>(got)});
}

KvConnection::Fate KvConnection::drain() {
  std::vector<char>& scratch = context_.scratch;
  const ssize_t got = stream_->receive(scratch.data(), room_after(0));
  if (got == 0) return Fate::kClose;
  if (got < 0) {
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    return later ? Fate::kKeep : Fate::kClose;
  }
  drained_bytes_ += static_cast<std::uint64_t>(got);
  const std::uint64_t most = unauthenticated() ? kMaxDrainedUnauthenticated : kMaxDrained;
  return drained_bytes_ > most ? Fate::kClose : Fate::kKeep;
}

KvConnection::Fate KvConnection::process(std::string_view bytes) {
  has_more_ = false;
  // `bytes` points into the shared scratch buffer, so what is not used is copied before another
  // connection reads.
  const ReadState taken = handle_requests(bytes);
  unread_.assign(bytes);
  if (flush() == Fate::kClose) return Fate::kClose;
  // Replies that blocked further requests may have been sent.
  has_more_ = taken != ReadState::kAll && state_ == State::kOpen && !blocked() && !unread_.empty();
  return Fate::kKeep;
}

// Handles complete requests from `bytes`, at most those of one turn.
KvConnection::ReadState KvConnection::handle_requests(std::string_view& bytes) {
  for (int requests = 0; state_ == State::kOpen && !blocked();) {
    const bool was_started = reader_.started();
    // Never in the middle of a request: its deadline would count time in which the server did not
    // read.
    if (!was_started && requests == kRequestsPerTurn) return ReadState::kTurn;
    const http::ReadStep step = reader_.read(bytes);
    if (!was_started && reader_.started()) message_start_ = context_.now;
    switch (step) {
      case http::ReadStep::kHead:
        ++requests;
        on_head();
        break;
      case http::ReadStep::kComplete:
        on_request(bytes.empty());
        break;
      case http::ReadStep::kError:
        refuse(reader_.error_status());
        break;
      case http::ReadStep::kNeedMore:
        charge_chunked_body();
        return ReadState::kAll;
    }
  }
  return ReadState::kHeld;
}

// From an unauthenticated client, one head at a time is read: pipelined requests stay in the
// kernel, where its own window limits them.
std::size_t KvConnection::room_after(std::size_t kept) const {
  const std::size_t room = context_.scratch.size() - kept;
  return unauthenticated() ? std::min(room, net::Stream::kLeastRoom) : room;
}

// The length of a chunked body is known only while it arrives.
void KvConnection::charge_chunked_body() {
  if (!reader_.head_done() || !reader_.head().chunked) return;
  set_charge(reader_.body_size());
  if (context_.service.over_capacity(context_.receiving_bytes)) refuse(507);
}

void KvConnection::on_head() {
  const http::RequestHead& head = reader_.head();
  form_ = {.head_only = head.method == http::Method::kHead,
           .keep_alive = head.keep_alive,
           .minor_version = head.minor_version};
  const bool has_body = head.chunked || head.content_length.value_or(0) > 0;
  const auto admission = context_.service.admit(head, peer_, context_.receiving_bytes);
  // Stays true: a monitor may send health checks without the token on an authenticated connection.
  known_ = known_ || admission.known;
  if (admission.refusal) {
    // The body is not read, so it could not be separated from what follows on this connection. An
    // unauthenticated client has had its reply.
    reply_to(*admission.refusal, form_.keep_alive && !has_body && known_);
    if (!has_body) reader_.reset();
    return;
  }
  reader_.allow_body(admission.body_limit);
  set_charge(head.content_length.value_or(0));
  if (has_body && head.expect_continue && head.minor_version >= 1) {
    http::append_continue(output_.tail());
    output_.note_appended();
  }
}

void KvConnection::on_request(bool last_of_its_bytes) {
  auto reply = context_.service.handle(id_, reader_.head(), reader_.take_body(), context_.now);
  set_charge(0);
  reader_.reset();
  if (reply) {
    // An unauthenticated client may repeat its health check, but not before it has the reply.
    reply_to(*reply, form_.keep_alive && (known_ || last_of_its_bytes));
  } else {
    state_ = State::kParked;
  }
}

void KvConnection::refuse(int status) {
  // Refusals of this layer are counted here, those of the service there.
  context_.service.count_reply(status);
  form_.head_only = false;
  reply_to({.status = status}, false);
}

void KvConnection::reply_to(const KvReply& reply, bool keep_alive) {
  const std::uint64_t length = reply.body ? reply.body->size() : 0;
  http::append_response_head(output_.tail(), {.status = reply.status,
                                              .content_length = length,
                                              .minor_version = form_.minor_version,
                                              .keep_alive = keep_alive,
                                              .server = kServerName,
                                              .date = context_.date,
                                              .content_type = reply.content_type,
                                              .extra = reply.fields});
  output_.note_appended();
  // Shared, not copied.
  if (!form_.head_only) output_.append_value(reply.body);
  if (keep_alive) return;
  state_ = State::kClosing;
  has_more_ = false;
}

KvConnection::Fate KvConnection::flush() {
  std::uint64_t sent = 0;
  const auto outcome = output_.flush(*stream_, sent);
  if (sent > 0) last_active_ = context_.now;
  context_.service.connections().sent_bytes += sent;
  if (outcome == http::OutputQueue::Flush::kFailed) return Fate::kClose;
  if (outcome == http::OutputQueue::Flush::kBlocked) return Fate::kKeep;
  // The stream itself may hold encrypted bytes back.
  if (!stream_->push()) return Fate::kClose;
  if (stream_->must_push()) return Fate::kKeep;
  if (state_ == State::kClosing) return close_after_reply();
  return input_ended_ ? Fate::kClose : Fate::kKeep;
}

KvConnection::Fate KvConnection::close_after_reply() {
  // Everything that arrived was used and no message is incomplete, so a plain close loses nothing.
  const bool clean = !reader_.started() && unread_.empty();
  if (clean || input_ended_) return Fate::kClose;
  // The peer sees the end of the reply and closes; until then its bytes are read and dropped.
  if (!stream_->shut_down_sending()) return Fate::kClose;
  state_ = State::kDraining;
  std::string().swap(unread_);  // clear() would keep the room
  set_charge(0);
  message_start_ = context_.now;
  return Fate::kKeep;
}

KvConnection::Fate KvConnection::on_ready(const KvReply& reply) {
  state_ = State::kOpen;
  input_pending_ = false;
  reply_to(reply, form_.keep_alive);
  return process(std::exchange(unread_, {}));
}

KvConnection::Fate KvConnection::give_way() {
  if (state_ != State::kParked) return Fate::kClose;
  context_.service.forget(id_);
  state_ = State::kOpen;
  refuse(503);
  return flush();
}

Clock::time_point KvConnection::request_deadline() const {
  const KvServerOptions& options = context_.options;
  // Two clocks: the whole request must keep up the least rate, and some byte must arrive every so
  // often.
  auto deadline = message_start_ + options.request_timeout;
  if (!reader_.head_done()) return deadline;
  const std::uint64_t length =
      reader_.head().chunked ? reader_.body_size() : reader_.head().content_length.value_or(0);
  deadline += std::chrono::milliseconds(1000 * length / options.least_rate_bytes_per_second);
  return std::min(deadline, last_active_ + options.request_timeout);
}

KvConnection::Fate KvConnection::on_sweep() {
  const KvServerOptions& options = context_.options;
  const auto now = context_.now;
  const auto timed_out = [&](bool yes) {
    if (yes) ++context_.service.connections().timed_out;
    return yes ? Fate::kClose : Fate::kKeep;
  };
  if (state_ == State::kDraining) return timed_out(now >= message_start_ + options.drain_timeout);
  // The peer does not read. last_active_ moves with every byte that it takes.
  if (has_output()) return timed_out(now >= last_active_ + options.write_timeout);
  if (state_ == State::kParked) return Fate::kKeep;  // the service ends the wait
  if (!begun()) {
    // Not counted as a time-out: closing an idle connection is normal.
    return now >= last_active_ + options.idle_timeout ? Fate::kClose : Fate::kKeep;
  }
  if (now < request_deadline()) return Fate::kKeep;
  if (!reader_.started()) return timed_out(true);  // no client is left to answer
  ++context_.service.connections().timed_out;
  refuse(408);
  return flush();
}

void KvConnection::set_charge(std::uint64_t bytes) {
  // A running sum over all connections, so that admission needs no loop.
  context_.receiving_bytes = context_.receiving_bytes - charge_ + bytes;
  charge_ = bytes;
}

}  // namespace hora::rendezvous
