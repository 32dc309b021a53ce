// SPDX-License-Identifier: Apache-2.0
// The two directions of a connection end separately: `gone` ends the reading and `deaf` the
// writing. A failed write must not stop the reading, because the peer's last message may explain
// its end.
#include "collectives/control/tcp_channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/control/tree_node.h"
#include "rendezvous/net/tcp_state.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

namespace {

// epoll's user data is a peer's index; these two values stand for the eventfd and the doorbell.
constexpr std::uint32_t kWakeUp = 0xFFFFFFFFu;
constexpr std::uint32_t kDoorbell = 0xFFFFFFFEu;
// The number of the peer that stands for all ranks below a tree node.
constexpr int kTree = -1;

// How long the other end may be silent. Of an idle connection that is four probes, one a second.
// Where one packet in twenty gets lost, all of them do once in hours; so links that are known to
// lose some have longer.
constexpr std::chrono::milliseconds kTimeout{5'000};
constexpr std::chrono::milliseconds kTimeoutWithLosses{15'000};

// The kernel ends connections by this, whether they are idle or wait for an answer.
void set_timeout(int socket, std::chrono::milliseconds timeout) {
  const auto timeout_ms = static_cast<unsigned>(timeout.count());
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

}  // namespace

void watch_for_silence(int socket) {
  const int on = 1;
  // Keepalive probes cover an idle connection. They stop while data is unacknowledged, which is
  // what TCP_USER_TIMEOUT covers.
  const int pause = 1;  // seconds before the first probe and between two probes
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof pause);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  set_timeout(socket, kTimeout);
  // Where packets get lost, what is sent again is sent every fifth of a second at first, instead of
  // at intervals that double: that often until the time is up.
  setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
  // Control messages are small and urgent: Nagle's algorithm would hold them back.
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void tolerate_losses(int socket) {
  if (net::has_outlived_losses(socket)) set_timeout(socket, kTimeoutWithLosses);
}

TcpChannel::TcpChannel()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_up_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kWakeUp;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_up_.get(), &event);
}

TcpChannel::~TcpChannel() = default;

void TcpChannel::keep(std::unique_ptr<TreeNode> node) { node_ = std::move(node); }

Status TcpChannel::add_tree(int size, os::Fd socket, FrameBuffer early, std::vector<Word> came,
                            os::Fd alarm) {
  HORA_TRY(add_peer(kTree, std::move(socket), std::move(early)));
  peers_.back().at_end = 0;  // this rank itself
  tree_size_ = size;
  early_words_ = std::move(came);
  alarm_ = std::move(alarm);
  return Ok{};
}

Status TcpChannel::add_way_to_rank_0(int over, os::Fd socket, FrameBuffer early) {
  HORA_TRY(add_peer(0, std::move(socket), std::move(early)));
  peers_.back().at_end = over;
  return Ok{};
}

Status TcpChannel::add_peer(int rank, os::Fd socket, FrameBuffer early) {
  if (!epoll_.valid() || !wake_up_.valid()) return errno_error(errno, "creating an epoll instance");
  watch_for_silence(socket.get());
  Peer peer;
  peer.rank = rank;
  peer.at_end = rank;
  peer.socket = std::move(socket);
  peer.in = std::move(early);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u32 = static_cast<std::uint32_t>(peers_.size());
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.socket.get(), &event) != 0) {
    return errno_error(errno, "watching a control connection");
  }
  places_[rank] = peers_.size();
  early_.push_back(peers_.size());
  peers_.push_back(std::move(peer));
  return Ok{};
}

Status TcpChannel::take_peer(TcpChannel& from, int rank, int as) {
  Peer* const peer = from.find(rank);
  if (peer == nullptr) return make_error(ErrorCode::kFailed, "no connection to take over");
  HORA_TRY(add_peer(as, std::move(peer->socket), std::move(peer->in)));
  peers_.back().taken_over = true;
  return Ok{};
}

void TcpChannel::watch_doorbell(os::Fd reading_end) {
  doorbell_ = std::move(reading_end);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kDoorbell;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), &event);
}

TcpChannel::Peer* TcpChannel::find(int rank) {
  const auto place = places_.find(rank);
  return place == places_.end() ? nullptr : &peers_[place->second];
}

void TcpChannel::lose(Peer& peer, std::string reason) {
  if (peer.gone) return;
  peer.gone = true;
  peer.reason = std::move(reason);
  // The socket stays open: liveness_fds() refers to it, and the peer may still read.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
}

void TcpChannel::watch(Peer& peer) {
  const bool wanted = !peer.gone && has_words(peer);
  if (wanted == peer.watching_output || peer.gone) return;
  peer.watching_output = wanted;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (wanted ? EPOLLOUT : 0u);
  event.data.u32 = static_cast<std::uint32_t>(&peer - peers_.data());
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), &event);
}

void TcpChannel::write_to(Peer& peer) {
  while (!peer.deaf && has_words(peer)) {
    const std::string& words = peer.shared ? *peer.shared : peer.out;
    const ssize_t count = ::send(peer.socket.get(), words.data() + peer.sent,
                                 words.size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      peer.sent += static_cast<std::size_t>(count);
      if (peer.sent == words.size()) forget_words(peer);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // The peer's last data is still unread; the reading finds the end.
      peer.deaf = true;
    }
  }
  while (peer.deaf && has_words(peer)) forget_words(peer);
}

// Data that has been sent, or never will be.
void TcpChannel::forget_words(Peer& peer) {
  peer.sent = 0;
  if (peer.shared) return peer.shared.reset();
  peer.out.clear();
}

void TcpChannel::read_from(Peer& peer) {
  char buffer[65536];
  while (!peer.gone) {
    const ssize_t count = ::recv(peer.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      peer.in.append({buffer, static_cast<std::size_t>(count)});
      // A short read means that the socket is empty; epoll is level-triggered and reports more.
      if (count < static_cast<ssize_t>(sizeof buffer)) return;
    } else if (count == 0) {
      lose(peer, "the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      lose(peer, errno_error(errno, "the connection broke").message);
    }
  }
}

void TcpChannel::send_by_tree(std::string_view passage) {
  Peer& peer = *find(kTree);
  if (peer.deaf) return;
  append_frame(peer.out, passage);
  write_to(peer);
  watch(peer);
}

void TcpChannel::send(int rank, std::string_view bytes) {
  if (is_behind_tree(rank)) return send_by_tree(passage_to({rank}, bytes));
  Peer* peer = find(rank);
  if (peer == nullptr || peer->deaf) return;
  append_frame(peer->out, bytes);
  write_to(*peer);
  watch(*peer);
}

void TcpChannel::send_to_all(const std::vector<std::int32_t>& ranks, std::string_view bytes) {
  if (tree_size_ > 0) {  // and then no other is sent the same
    Ranks sorted(ranks.begin(), ranks.end());
    std::sort(sorted.begin(), sorted.end());
    const bool all = static_cast<int>(sorted.size()) == tree_size_ - 1;
    return send_by_tree(all ? passage_to_all(bytes) : passage_to(sorted, bytes));
  }
  std::string frame;
  append_frame(frame, bytes);
  const auto shared = std::make_shared<const std::string>(std::move(frame));
  for (const std::int32_t rank : ranks) {
    Peer* peer = find(rank);
    if (peer == nullptr || peer->deaf) continue;
    if (has_words(*peer)) {
      peer->out += *shared;
    } else {
      peer->shared = shared;
    }
    write_to(*peer);
    watch(*peer);
  }
}

Status TcpChannel::flush(int rank, Deadline deadline) {
  std::vector<pollfd> full;
  while (true) {
    full.clear();
    int reader = -1;  // the first rank that does not read
    for (Peer& peer : peers_) {
      if (rank >= 0 && peer.rank != rank && peer.rank != kTree) continue;
      write_to(peer);
      watch(peer);
      if (!has_words(peer)) continue;
      full.push_back({peer.socket.get(), POLLOUT, 0});
      if (reader < 0) reader = peer.rank;
    }
    if (full.empty()) return Ok{};
    if (::poll(full.data(), full.size(), os::milliseconds_until(deadline)) == 0 &&
        Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut,
                        "rank " + std::to_string(reader) + " does not read its control messages");
    }
  }
}

void TcpChannel::collect(Peer& peer, std::vector<Incoming>& messages) {
  while (std::optional<std::string> message = peer.in.next()) {
    if (peer.rank != kTree) {
      messages.push_back({peer.rank, false, std::move(*message)});
    } else if (auto words = decode_words(*message, tree_size_)) {
      collect(*words, messages);
    } else {
      lose(peer, "it sent a malformed message");
    }
  }
  // Whole messages come first, so that the caller sees them before the end of the peer.
  if (peer.in.broken()) lose(peer, "it sent a malformed message");
  if (peer.gone && !peer.reported) {
    peer.reported = true;
    messages.push_back({peer.at_end, true, peer.reason});
  }
}

void TcpChannel::collect(const std::vector<Word>& words, std::vector<Incoming>& messages) {
  for (const Word& word : words) {
    for (const std::int32_t rank : word.ranks) {
      messages.push_back({rank, word.kind != Word::kSaid, word.text, word.kind == Word::kCutOff});
    }
  }
}

std::vector<Incoming> TcpChannel::poll(Deadline deadline) {
  std::vector<Incoming> messages;
  // Messages that came with the handshake.
  collect(std::exchange(early_words_, {}), messages);
  for (const std::size_t place : std::exchange(early_, {})) collect(peers_[place], messages);
  epoll_event events[64];
  const int count =
      epoll_wait(epoll_.get(), events, 64, messages.empty() ? os::milliseconds_until(deadline) : 0);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t index = events[i].data.u32;
    if (index == kWakeUp) {
      std::uint64_t ignored = 0;
      // Drain the counter, or the level-triggered epoll would report it again at once.
      while (::read(wake_up_.get(), &ignored, sizeof ignored) > 0) {
      }
      continue;
    }
    if (index == kDoorbell) {
      char rings[64];
      [[maybe_unused]] const ssize_t ignored = ::read(doorbell_.get(), rings, sizeof rings);
      continue;
    }
    Peer& peer = peers_[index];
    if (events[i].events & EPOLLOUT) write_to(peer);
    read_from(peer);
    watch(peer);
    collect(peer, messages);
  }
  return messages;
}

void TcpChannel::wake() {
  const std::uint64_t one = 1;
  // EAGAIN: the counter is full, so a wake-up is pending already.
  [[maybe_unused]] const ssize_t ignored = ::write(wake_up_.get(), &one, sizeof one);
}

void TcpChannel::hang_up() {
  for (Peer& peer : peers_) {
    // The other leaders get no message: their stars are separate from the one that ends here.
    if (peer.taken_over) continue;
    peer.deaf = true;
    ::shutdown(peer.socket.get(), SHUT_WR);
  }
}

std::vector<int> TcpChannel::liveness_fds() const {
  std::vector<int> fds;
  for (const Peer& peer : peers_) fds.push_back(peer.socket.get());
  if (alarm_.valid()) fds.push_back(alarm_.get());
  return fds;
}

}  // namespace hora::collectives
