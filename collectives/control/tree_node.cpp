// SPDX-License-Identifier: Apache-2.0
// One thread in epoll. A link is read until it ends, even if nothing can be sent there any more;
// words and passages are in tree_frames.h.
#include "collectives/control/tree_node.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/control/tcp_channel.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

namespace {

// Numbers of links; those below count on from kFirstBelow.
constexpr std::uint32_t kAbove = 0;
constexpr std::uint32_t kOwn = 1;
constexpr std::uint32_t kDoorNumber = 2;
constexpr std::uint32_t kStop = 3;
constexpr std::uint32_t kFirstBelow = 4;

// The ranks of a host ask for the same at nearly the same time: the first request may wait this
// long for the others, to be passed on together.
constexpr std::chrono::microseconds kGather{100};
// How long the connections stay open at the end, for what the kernel has not delivered yet.
constexpr std::chrono::seconds kLingerTimeout{2};

std::shared_ptr<const std::string> framed(std::string_view message) {
  std::string frame;
  append_frame(frame, message);
  return std::make_shared<const std::string>(std::move(frame));
}

std::string closed_text() { return "the connection was closed"; }

}  // namespace

TreeNode::TreeNode(Start start)
    : start_(std::move(start)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_link_(kFirstBelow) {}

Result<std::unique_ptr<TreeNode>> TreeNode::start(Start start) {
  std::unique_ptr<TreeNode> self(new TreeNode(std::move(start)));
  HORA_TRY(self->open());
  auto thread = os::start_service_thread("hora-tree", [node = self.get()] { node->run(); });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

// The thread sends its last messages before it ends, so this may take kLingerTimeout.
TreeNode::~TreeNode() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

Status TreeNode::open() {
  if (!epoll_.valid() || !stop_.valid()) return errno_error(errno, "creating an epoll instance");
  HORA_TRY(watch_input(stop_.get(), kStop));
  const auto is_in = [this](int rank) { return route_.count(rank) != 0; };
  door_.emplace(std::move(start_.listener), start_.self, true, is_in);
  HORA_TRY(door_->open());
  HORA_TRY(watch_input(door_->fd(), kDoorNumber));
  HORA_TRY(watch_input(start_.above.get(), kAbove));
  add(kAbove, std::move(start_.above), std::move(start_.above_in), start_.rank_above);
  // The root's own runtime is above it already.
  if (is_root()) return Ok{};
  HORA_TRY(watch_input(start_.own.get(), kOwn));
  add(kOwn, std::move(start_.own), {}, start_.self.rank).behind = {start_.self.rank};
  route_[start_.self.rank] = kOwn;
  return Ok{};
}

Status TreeNode::watch_input(int fd, std::uint32_t number) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = number;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Ok{};
  return errno_error(errno, "watching the connections of other ranks");
}

TreeNode::Link& TreeNode::add(std::uint32_t number, os::Fd socket, FrameBuffer in, int rank) {
  Link& link = links_[number];
  link.number = number;
  link.socket = std::move(socket);
  link.in = std::move(in);
  link.rank = rank;
  return link;
}

void TreeNode::run() {
  handle(kAbove);  // arrived with the handshake
  while (!is_done()) wait();
}

// A link may end without having taken everything: a peer that does not read must not keep this
// process.
bool TreeNode::is_done() const {
  if (!stopping_) return false;
  return Clock::now() >= *stopping_ ||
         std::all_of(links_.begin(), links_.end(), [](const auto& each) {
           return each.second.over && (each.second.deaf || each.second.out.empty());
         });
}

// poll() and not epoll_wait() waits, since the latter knows milliseconds only and kGather is a
// tenth of one.
void TreeNode::wait() {
  Deadline until = std::min(due_, stopping_.value_or(Deadline::max()));
  if (door_) until = std::min(until, door_->next_look());
  pollfd all{epoll_.get(), POLLIN, 0};
  if (until == Deadline::max()) {
    ::poll(&all, 1, -1);
  } else {
    const timespec relative = os::timespec_until(until);
    ::ppoll(&all, 1, &relative, nullptr);
  }
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  bool peer_connects = door_ && door_->next_look() <= Clock::now();
  for (int i = 0; i < count; ++i) {
    const std::uint32_t number = events[i].data.u32;
    if (number == kStop) {
      if (stopping_) continue;
      stopping_ = Clock::now() + kLingerTimeout;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stop_.get(), nullptr);
      pass_on();
      for (auto& [each, link] : links_) end(link);
    } else if (number == kDoorNumber) {
      peer_connects = true;
    } else if (const auto found = links_.find(number); found != links_.end()) {
      if ((events[i].events & EPOLLOUT) != 0) write_to(found->second);
      read_from(number);
      watch(found->second);
    }
  }
  if (peer_connects && door_) admit();
  if (Clock::now() >= due_) pass_on();
}

void TreeNode::admit() {
  auto came = door_->look(kNoWait);
  if (!came) {
    // Clients that are not admitted yet learn that by the end of their connections.
    os::log_warn("control", came.error().message);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door_->fd(), nullptr);
    door_.reset();
    return;
  }
  for (PendingPeer& each : *came) {
    const std::uint32_t number = next_link_++;
    if (const Status watched = watch_input(each.socket.get(), number); !watched) {
      os::log_warn("control", watched.error().message);
      continue;
    }
    watch_for_silence(each.socket.get());
    add(number, std::move(each.socket), std::move(each.in), each.rank).carries = each.carries;
    join(number, {Word::kJoined, {each.rank}, std::move(each.rank_info)});
    handle(number);
  }
}

void TreeNode::read_from(std::uint32_t number) {
  Link& link = links_.at(number);
  char buffer[65536];
  while (!link.over) {
    const ssize_t count = ::recv(link.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      link.in.append({buffer, static_cast<std::size_t>(count)});
      handle(number);
      // A short read means that the socket is empty; epoll is level-triggered and reports more.
      if (count < static_cast<ssize_t>(sizeof buffer)) return;
    } else if (count == 0) {
      lose(number, closed_text());
    } else if (os::would_block(errno)) {
      return;
    } else if (errno != EINTR) {
      lose(number, errno_error(errno, "the connection broke").message);
    }
  }
}

// The messages that have come by that link.
void TreeNode::handle(std::uint32_t number) {
  Link& link = links_.at(number);
  while (!link.over) {
    std::optional<std::string> message = link.in.next();
    if (!message) break;
    if (number == kAbove) {
      on_passage(*message);
    } else if (link.carries) {
      on_words(number, *message);
    } else {
      collect(number, {Word::kSaid, {link.rank}, std::move(*message)});
    }
  }
  if (link.in.broken()) lose(number, "it sent a malformed message");
}

// From above to the named ranks. The welcome goes to all: no rank can join any more then.
void TreeNode::on_passage(std::string_view message) {
  const auto passage = decode_passage(message, start_.self.size);
  if (!passage) return lose(kAbove, "it sent a malformed message");
  if (!welcomed_ && passage->to_all && !passage->text.empty() &&
      passage->text.front() == static_cast<char>(meeting::kWelcome)) {
    welcomed_ = true;
    if (door_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door_->fd(), nullptr);
    door_.reset();
  }
  if (passage->to_all) return send_to_all_below(passage->text, framed(message));
  std::map<std::uint32_t, Ranks> by_link;
  for (const std::int32_t rank : passage->ranks) {
    // None: that rank is gone.
    if (const auto found = route_.find(rank); found != route_.end()) {
      by_link[found->second].push_back(rank);
    }
  }
  Frame plain;
  Frame to_all;
  for (auto& [number, ranks] : by_link) {
    Link& link = links_.at(number);
    // A rank itself gets the bare text, as in a star; a leader gets the receivers, too, unless it
    // is for all that it speaks for, which is the usual case and needs no list.
    if (!link.carries) {
      if (!plain) plain = framed(passage->text);
      push(link, plain);
    } else if (ranks.size() == link.behind.size()) {
      if (!to_all) to_all = framed(passage_to_all(passage->text));
      push(link, to_all);
    } else {
      push(link, framed(passage_to(ranks, passage->text)));
    }
  }
}

void TreeNode::send_to_all_below(std::string_view text, const Frame& passage) {
  Frame plain;
  for (auto& [number, link] : links_) {
    if (number == kAbove) continue;
    if (!link.carries && !plain) plain = framed(text);
    push(link, link.carries ? passage : plain);
  }
}

// From below. A leader may speak only for the ranks that have joined by its link: its messages
// about others are dropped, so a wrong one harms only its own.
void TreeNode::on_words(std::uint32_t number, std::string_view message) {
  auto words = decode_words(message, start_.self.size);
  if (!words) return lose(number, "it sent a malformed message");
  for (Word& word : *words) {
    if (word.kind == Word::kJoined) {
      join(number, std::move(word));
      continue;
    }
    std::erase_if(word.ranks, [&](std::int32_t rank) {
      const auto found = route_.find(rank);
      return found == route_.end() || found->second != number;
    });
    if (word.ranks.empty()) continue;
    if (word.kind != Word::kSaid) {
      Link& link = links_.at(number);
      for (const std::int32_t rank : word.ranks) {
        route_.erase(rank);
        std::erase(link.behind, rank);
      }
    }
    collect(number, std::move(word));
  }
}

// Two processes with one rank are a mistake of their starter. The second gets an error; the first
// goes on.
void TreeNode::join(std::uint32_t number, Word word) {
  for (const std::int32_t rank : word.ranks) {
    if (route_.count(rank) != 0) {
      const std::string text =
          meeting::refusal("another process is rank " + std::to_string(rank) + " already");
      push(links_.at(number), framed(passage_to({rank}, text)));
      return;
    }
    route_[rank] = number;
    Ranks& behind = links_.at(number).behind;
    behind.insert(std::upper_bound(behind.begin(), behind.end(), rank), rank);
  }
  collect(number, std::move(word));
}

// The link has ended. All ranks below it are cut off from here.
void TreeNode::lose(std::uint32_t number, const std::string& how) {
  Link& link = links_.at(number);
  if (link.over) return;
  link.over = true;
  // The remaining bytes may still be sent.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.socket.get(), nullptr);
  link.watching_output = false;
  watch(link);
  if (number == kAbove) return lose_above(how);
  for (const std::int32_t rank : link.behind) route_.erase(rank);
  Ranks behind = std::move(link.behind);
  link.behind.clear();
  if (std::erase(behind, link.rank) > 0) collect(number, {Word::kGone, {link.rank}, how});
  if (behind.empty()) return;
  collect(number,
          {Word::kCutOff, std::move(behind),
           "rank " + std::to_string(link.rank) + ", by which its control messages went, is gone"});
}

// Before the welcome those below wait for an answer, and get a refusal; later for verdicts, and get
// the loss of a rank. Both name the leader that is gone, which they do not know of otherwise.
void TreeNode::lose_above(const std::string& how) {
  if (!is_root()) {
    std::string text;
    if (welcomed_) {
      WireWriter out;
      out.integer(start_.rank_above);
      out.text(how);
      text = control_message(ControlMessage::kLost, out.take());
    } else {
      text = meeting::refusal("rank " + std::to_string(start_.rank_above) +
                              ", by which its control messages go, is gone: " + how);
    }
    send_to_all_below(text, framed(passage_to_all(text)));
  }
  for (auto& [number, link] : links_) {
    if (number != kAbove) end(link);
  }
}

// Merging pays for what all ranks of a host send within a step. An abort, or the loss of a rank, is
// sent at once: others wait for it.
bool TreeNode::may_wait(const Word& word) const {
  if (word.kind == Word::kJoined) return true;
  if (word.kind != Word::kSaid) return false;
  const ControlMessage kind = kind_of(word.text);
  return kind == ControlMessage::kRequests || kind == ControlMessage::kExchange ||
         kind == ControlMessage::kFinished;
}

// Goes up when all below have sent theirs, or kGather after the first: a rank that is late, or
// sends nothing in this step, delays the others by no more.
void TreeNode::collect(std::uint32_t number, Word word) {
  Link& link = links_.at(number);
  link.spoke = true;
  if (word.kind == Word::kGone) any_left_ = true;
  const bool waits = may_wait(word);
  words_.add(std::move(word));
  if (!waits) return pass_on();
  const bool all_spoke = std::all_of(links_.begin(), links_.end(), [](const auto& each) {
    return each.first == kAbove || each.second.spoke || each.second.over;
  });
  if (all_spoke && !door_) return pass_on();
  if (due_ == Deadline::max()) due_ = Clock::now() + kGather;
}

void TreeNode::pass_on() {
  due_ = Deadline::max();
  for (auto& [number, link] : links_) link.spoke = false;
  if (!words_.empty()) push(links_.at(kAbove), framed(words_.take()));
  if (any_left_ && start_.alarm.valid()) ::shutdown(start_.alarm.get(), SHUT_WR);
}

// One frame is shared by all links that it goes to: a verdict for 32 leaders is kept once.
void TreeNode::push(Link& link, Frame frame) {
  if (link.deaf || link.ends) return;
  link.out.push_back(std::move(frame));
  if (link.out.size() == 1) write_to(link);
  watch(link);
}

void TreeNode::write_to(Link& link) {
  while (!link.deaf && !link.out.empty()) {
    const std::string& frame = *link.out.front();
    const ssize_t count = ::send(link.socket.get(), frame.data() + link.sent,
                                 frame.size() - link.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      link.sent += static_cast<std::size_t>(count);
      if (link.sent < frame.size()) continue;
      link.sent = 0;
      link.out.pop_front();
    } else if (os::would_block(errno)) {
      return;
    } else if (errno != EINTR) {
      // Its last data is still unread; the reading finds the end.
      link.deaf = true;
      link.out.clear();
    }
  }
  if (link.ends && !link.deaf) {
    link.deaf = true;
    ::shutdown(link.socket.get(), SHUT_WR);
  }
}

void TreeNode::watch(Link& link) {
  const bool wanted = !link.deaf && !link.out.empty();
  if (wanted == link.watching_output) return;
  link.watching_output = wanted;
  epoll_event event{};
  event.events = (link.over ? 0u : EPOLLIN) | (wanted ? EPOLLOUT : 0u);
  event.data.u32 = link.number;
  // A link that is over has left the set.
  const int change = link.over ? (wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL) : EPOLL_CTL_MOD;
  ::epoll_ctl(epoll_.get(), change, link.socket.get(), &event);
}

// Says nothing more there, after what is left to say.
void TreeNode::end(Link& link) {
  if (link.ends) return;
  link.ends = true;
  write_to(link);
  watch(link);
}

}  // namespace hora::collectives
