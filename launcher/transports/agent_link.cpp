#include "launcher/transports/agent_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/protocol/agent_limits.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/would_block.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kWindow = 256 * 1024;  // queued in either direction
constexpr std::size_t kNoLimit = ~std::size_t{0};
constexpr std::size_t kReadSize = 64 * 1024;
constexpr auto kLinger = std::chrono::seconds(2);
constexpr std::size_t kMaxErrors = 8 * 1024;
constexpr std::size_t kMaxGreeting = 1u << 20;  // a Hello is some hundred bytes
constexpr int kMaxNeeds = 4;                    // the script tries three directories

std::string machine_here() {
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "";
}

std::uint32_t frame_length(const std::string& header) {
  const auto* u = reinterpret_cast<const unsigned char*>(header.data());
  return std::uint32_t{u[0]} | std::uint32_t{u[1]} << 8 | std::uint32_t{u[2]} << 16 |
         std::uint32_t{u[3]} << 24;
}

}  // namespace

AgentLink::AgentLink(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Carrier& carrier)
    : loop_(loop),
      local_(std::move(local)),
      options_(std::move(options)),
      carrier_(carrier),
      nonce_(os::random_token().substr(0, 16)),
      dialogue_(nonce_) {}

AgentLink::~AgentLink() {
  *alive_ = false;
  loop_.cancel(linger_timer_);
  if (watching_) loop_.unwatch(local_.get());
}

Status AgentLink::open() {
  watched_events_ = EPOLLRDHUP;
  auto status = loop_.watch(local_.get(), watched_events_,
                            [this](std::uint32_t events) { on_local_io(events); });
  watching_ = status.has_value();
  return status;
}

Result<std::string> AgentLink::command_line() const {
  BootstrapRequest request;
  request.sha256 = options_.image.sha256;
  request.size_bytes = options_.payload->size_bytes();
  request.nonce = nonce_;
  request.force = forced_;
  request.bundle_hash = options_.image.bundle_hash;
  request.arguments = options_.image.arguments;
  return bootstrap_line(request);
}

void AgentLink::report(Stage stage, std::string_view detail) const {
  if (options_.observer) options_.observer(options_.host_index, stage, detail);
}

// --- the supervisor's end ------------------------------------------------------------------------

void AgentLink::on_local_io(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_local();
  const bool closed = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (state_ == State::kRunning) {
    // What it wrote before it closed its end is all there: no more than the socket holds.
    if (closed || (events & EPOLLIN) != 0) read_local(closed ? kNoLimit : kWindow);
  } else if (closed || (events & EPOLLRDHUP) != 0) {
    local_at_end_ = true;
  }
  if (closed) {
    local_gone_ = local_at_end_ = true;
    to_local_.clear();
  }
  if (local_at_end_ && state_ < State::kRunning) {
    finish();  // nobody waits for an agent any more
  } else if (local_gone_) {
    linger();
  }
  watch_local();
  deliver();
}

void AgentLink::read_local(std::size_t limit) {
  static thread_local char buffer[kReadSize];
  while (!local_at_end_ && to_remote_.size() < limit) {
    const ssize_t got = ::recv(local_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      to_remote_.append({buffer, static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      local_at_end_ = true;
    }
  }
}

// The supervisor is gone; what it wrote last is still delivered, if the far side takes it.
void AgentLink::linger() {
  if (state_ != State::kRunning || outgoing().empty()) return finish();
  if (linger_timer_ != 0) return;
  linger_timer_ = loop_.call_after(kLinger, [this] {
    finish();
    deliver();
  });
}

void AgentLink::write_local() {
  while (!to_local_.empty()) {
    const auto bytes = to_local_.front();
    const ssize_t wrote =
        ::send(local_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote > 0) {
      to_local_.pop(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EINTR) {
      continue;
    } else if (wrote < 0 && os::would_block(errno)) {
      return;
    } else {
      to_local_.clear();
      local_gone_ = local_at_end_ = true;
    }
  }
  if (state_ == State::kEnding) finish();
}

void AgentLink::watch_local() {
  if (!watching_) return;
  if (local_gone_) {
    loop_.unwatch(local_.get());
    watching_ = false;
    return;
  }
  std::uint32_t events = 0;
  if (!local_at_end_) {
    events |= EPOLLRDHUP;
    if (state_ == State::kRunning && to_remote_.size() < kWindow) events |= EPOLLIN;
    // A half-closed end would be reported again and again while its last bytes have to wait.
    if (state_ == State::kRunning && to_remote_.size() >= kWindow) events &= ~EPOLLRDHUP;
  }
  if (!to_local_.empty()) events |= EPOLLOUT;
  if (events == watched_events_) return;
  watched_events_ = events;
  (void)loop_.change(local_.get(), events);
}

void AgentLink::finish() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (watching_) loop_.unwatch(local_.get());
  watching_ = false;
  local_.reset();
  notify();
}

// Tells the carrier, once, when the call that is under way has returned.
void AgentLink::notify() {
  if (notify_posted_ || finished_) return;
  notify_posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    notify_posted_ = false;
    deliver();
  });
}

void AgentLink::deliver() {
  if (finished_) return;
  if (state_ == State::kClosed) {
    finished_ = true;
    carrier_.link_finished();
  } else if (std::exchange(restarting_, false)) {
    carrier_.link_restarts();
  } else {
    carrier_.link_changed();
  }
}

// --- the remote end ------------------------------------------------------------------------------

std::size_t AgentLink::room() const {
  if (state_ >= State::kEnding) return kReadSize;  // thrown away
  return to_local_.size() < kWindow ? kWindow - to_local_.size() : 0;
}

bool AgentLink::overfull() const { return to_local_.size() >= 4 * kWindow; }

void AgentLink::on_remote_output(std::string_view bytes) {
  if (restarting_) return;  // from the command that is given up
  switch (state_) {
    case State::kBootstrap:
      follow_dialogue(bytes);
      break;
    case State::kGreeting:
      greeting_.append(bytes);
      on_greeting();
      break;
    case State::kRunning:
      pass_on(bytes);
      break;
    case State::kEnding:
    case State::kClosed:
      return;
  }
  if (state_ == State::kClosed) return;
  write_local();
  watch_local();
}

void AgentLink::on_remote_errors(std::string_view bytes) {
  errors_.append(bytes);
  if (errors_.size() > kMaxErrors) errors_.erase(0, errors_.size() - kMaxErrors);
}

void AgentLink::follow_dialogue(std::string_view bytes) {
  auto event = dialogue_.feed(bytes);
  while (state_ == State::kBootstrap && !restarting_) {
    if (std::holds_alternative<BootstrapDialogue::Listening>(event)) return;
    if (const auto* need = std::get_if<BootstrapDialogue::Need>(&event)) {
      on_need(*need);
    } else if (const auto* failed = std::get_if<BootstrapDialogue::Failed>(&event)) {
      const bool full = is_disk_full(failed->directories);
      return fail(
          {std::string(full ? failure::kDiskFull : failure::kCache),
           options_.host + ": no directory can hold the agent: " + unfit_text(failed->directories),
           full ? "free some space there, or set XDG_CACHE_HOME for that account"
                : "make one of them usable, or set XDG_CACHE_HOME for that account"});
    } else {
      greeting_ = std::move(std::get<BootstrapDialogue::Started>(event).rest);
      state_ = State::kGreeting;
      return on_greeting();
    }
    event = dialogue_.feed({});
  }
}

void AgentLink::on_need(const BootstrapDialogue::Need& need) {
  const std::string here = machine_here();
  if (!need.machine.empty() && need.machine != here) {
    to_remote_.append(transfer_refusal());
    return fail(
        {std::string(failure::kAgent),
         options_.host + " is a " + need.machine + " machine, the agent here is for " + here,
         "launch from a machine of the same kind as the hosts"});
  }
  if (++needs_ > kMaxNeeds || payload_) {
    return fail({std::string(failure::kAgent), options_.host + ": kept requesting the agent", ""});
  }
  report(Stage::kShip, need.directory);
  options_.payload->get(need.gzip,
                        [this, gzip = need.gzip, loop = &loop_,
                         alive = std::weak_ptr<bool>(alive_)](Result<AgentPayload::Bytes> bytes) {
                          loop->post([this, gzip, alive, bytes = std::move(bytes)]() mutable {
                            const auto still = alive.lock();
                            if (still && *still) on_payload(gzip, std::move(bytes));
                          });
                        });
}

void AgentLink::on_payload(bool gzip, Result<AgentPayload::Bytes> bytes) {
  if (state_ != State::kBootstrap) return;
  if (!bytes) {
    return fail({std::string(failure::kAgent),
                 options_.host + ": the agent cannot be sent: " + bytes.error().message, ""});
  }
  to_remote_.append(transfer_header(gzip, (*bytes)->size()));
  payload_ = *std::move(bytes);
  payload_position_ = 0;
  notify();
}

// The first frame of an agent is Hello. One that was just shipped reports what it is.
void AgentLink::on_greeting() {
  if (greeting_.size() < kFrameHeaderSize) return;
  const std::size_t length = frame_length(greeting_);
  const bool hello = greeting_[4] == static_cast<char>(FrameType::kHello);
  if (hello && length <= kMaxGreeting) {
    if (greeting_.size() < kFrameHeaderSize + length) return;
    const auto message = decode_hello(std::string_view(greeting_).substr(kFrameHeaderSize, length));
    if (message && !message->agent_sha256.empty() &&
        message->agent_sha256 != options_.image.sha256) {
      if (!forced_) return restart("its hash does not match its name");
      return fail({std::string(failure::kAgent),
                   options_.host + ": the agent was corrupted on the way (SHA-256 " +
                       message->agent_sha256 + ", expected " + options_.image.sha256 + ")",
                   "check that host's memory and disk"});
    }
  }
  state_ = State::kRunning;
  payload_.reset();
  report(Stage::kAgent);
  to_local_.append(kAgentMagic);
  pass_on(greeting_);
  greeting_.clear();
  greeting_.shrink_to_fit();
  notify();
}

void AgentLink::pass_on(std::string_view bytes) {
  to_local_.append(bytes);
  while (!bytes.empty()) {
    if (frame_left_ > 0) {
      const std::size_t part = std::min(frame_left_, bytes.size());
      frame_left_ -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const std::size_t part = std::min(kFrameHeaderSize - frame_header_.size(), bytes.size());
    frame_header_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (frame_header_.size() == kFrameHeaderSize) {
      frame_left_ = frame_length(frame_header_);
      last_frame_type_ = static_cast<std::uint8_t>(frame_header_[4]);
      frame_header_.clear();
    }
  }
}

void AgentLink::restart(std::string_view why) {
  report(Stage::kShell, "the cached agent is replaced: " + std::string(why));
  forced_ = true;
  restarting_ = true;
  nonce_ = os::random_token().substr(0, 16);
  dialogue_ = BootstrapDialogue(nonce_);
  greeting_.clear();
  errors_.clear();
  to_remote_.clear();
  payload_.reset();
  needs_ = 0;
  state_ = State::kBootstrap;
  notify();
}

// What the far side said, noise and stderr, for a message; empty when it said nothing.
std::string AgentLink::remote_words() const {
  std::string text = dialogue_.noise();
  if (!trim(text).empty() && !trim(errors_).empty()) text += '\n';
  text += errors_;
  if (trim(text).empty()) return {};
  return "; it said: " + last_words(text);
}

void AgentLink::fail_before_start(const RemoteEnd& end) {
  const std::string how = describe(end) + remote_words();
  if (!end.link_error.empty()) {
    return fail({std::string(options_.lost_class), options_.host + ": " + how, ""});
  }
  if (state_ == State::kGreeting || dialogue_.asked()) {
    return fail({std::string(failure::kAgent), options_.host + ": the agent did not start: " + how,
                 "check for a full disk, a security policy or a missing kernel feature there"});
  }
  if (means_no_shell(end, dialogue_.noise() + errors_) &&
      options_.shell_class == failure::kRemoteShell) {
    return fail({std::string(failure::kNoShell),
                 options_.host + ": its account has no usable login shell: " + how,
                 "use another account (-H user@host), or give this one a shell"});
  }
  fail({std::string(options_.shell_class), options_.host + ": the agent was not started: " + how,
        options_.shell_advice});
}

void AgentLink::on_remote_end(const RemoteEnd& end) {
  if (state_ >= State::kEnding || restarting_) return;
  if (state_ != State::kRunning) {
    // A cached agent that cannot start says nothing that tells it from a shell that cannot: once,
    // a fresh copy is tried.
    const bool may_be_the_copy = !forced_ && !dialogue_.asked() && end.link_error.empty();
    if (may_be_the_copy) return restart(describe(end));
    return fail_before_start(end);
  }
  const bool said_why = last_frame_type_ == static_cast<std::uint8_t>(FrameType::kGoodbye) ||
                        last_frame_type_ == static_cast<std::uint8_t>(FrameType::kFailure);
  const bool between_frames = frame_left_ == 0 && frame_header_.empty();
  if (!said_why && between_frames && !local_gone_) {
    std::string message = options_.host + ": the agent is gone: " + describe(end);
    if (!trim(errors_).empty()) message += "; it said: " + last_words(errors_);
    append_failure({std::string(failure::kHostLost), std::move(message), ""});
  }
  state_ = State::kEnding;
  write_local();
  if (state_ != State::kClosed) watch_local();
}

std::string_view AgentLink::outgoing() const {
  if (!to_remote_.empty()) return to_remote_.front();
  if (payload_) return std::string_view(*payload_).substr(payload_position_);
  return {};
}

void AgentLink::sent(std::size_t count) {
  if (!to_remote_.empty()) {
    to_remote_.pop(count);
  } else if (payload_) {
    payload_position_ += count;
    if (payload_position_ == payload_->size()) payload_.reset();
  }
  if (state_ != State::kRunning) return;
  if (local_gone_ && outgoing().empty()) {
    finish();
    return notify();
  }
  watch_local();
}

bool AgentLink::wants_end_of_input() const {
  return state_ == State::kRunning && local_at_end_ && outgoing().empty();
}

void AgentLink::append_failure(const Failure& failure) {
  to_local_.append(encode_frame(FrameType::kFailure, encode(fit(failure))));
}

void AgentLink::fail(const Failure& failure) {
  if (state_ >= State::kEnding) return;
  if (state_ != State::kRunning) to_local_.append(kAgentMagic);
  append_failure(failure);
  state_ = State::kEnding;
  restarting_ = false;
  write_local();
  if (state_ != State::kClosed) watch_local();
  notify();
}

}  // namespace hora::launcher
