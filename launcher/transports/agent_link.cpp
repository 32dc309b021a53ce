// SPDX-License-Identifier: Apache-2.0
// A link is in one of five states, in this order:
//   kBootstrap  the start script runs on the host: it finds a cached agent or asks for one
//   kGreeting   the agent's magic has come; its first frame says which agent it is
//   kRunning    bytes pass both ways
//   kEnding     a failure or the agent's end is queued for the supervisor
//   kClosed     the supervisor has read it all, or has closed its end
// A cached agent that turns out to be broken leads back to kBootstrap, once, with a fresh copy.
#include "launcher/transports/agent_link.h"

#include <sys/epoll.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kWindow = 256 * 1024;  // queued in either direction
constexpr std::size_t kNoLimit = ~std::size_t{0};
constexpr std::size_t kDiscardSize = 64 * 1024;  // read at a time only to be thrown away
constexpr auto kLinger = std::chrono::seconds(2);
constexpr std::size_t kMaxErrors = 8 * 1024;
constexpr std::size_t kMaxGreeting = 1u << 20;  // a Hello is some hundred bytes
constexpr int kMaxNeeds = 4;                    // the script tries three directories

std::string new_nonce() { return os::random_token().substr(0, 16); }

// An upgrade while the job runs. The agent of another version would not understand this launcher.
constexpr const char* kReplaced = " is not what it was when this job began";
constexpr const char* kStartAgain = "if Hora was installed again meanwhile, start the job again";

// Of any processor: a host with an agent in its cache does not report which one it started.
bool has_build(const AgentImage& image, const std::string& sha256) {
  return std::any_of(image.builds.begin(), image.builds.end(),
                     [&sha256](const AgentBuild& build) { return build.sha256 == sha256; });
}

// Whether `packed` holds `bytes`, by the trailer of gzip (RFC 1952: CRC-32 and size of the
// contents, little-endian). Another build may have replaced one of the two files.
bool is_packed_from(const std::string& packed, const std::string& bytes) {
  constexpr std::size_t kTrailer = 8;
  if (packed.size() < kTrailer) return false;
  std::string_view trailer = std::string_view(packed).substr(packed.size() - kTrailer);
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  return read_u32(trailer) == static_cast<std::uint32_t>(crc) && read_u32(trailer) == bytes.size();
}

}  // namespace

AgentLink::Attempt::Attempt(bool fresh_copy)
    : nonce(new_nonce()), dialogue(nonce), forced(fresh_copy) {}

// What the host printed, noise and stderr, for a message; empty if it printed nothing.
std::string AgentLink::Attempt::remote_words() const {
  std::string text = dialogue.noise();
  if (!trim(text).empty() && !trim(errors).empty()) text += '\n';
  text += errors;
  if (trim(text).empty()) return {};
  return "; it said: " + last_words(text);
}

AgentLink::AgentLink(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Carrier& carrier)
    : supervisor_(loop, std::move(local)),
      options_(std::move(options)),
      carrier_(carrier),
      attempt_(/*fresh_copy=*/false),
      notice_(loop),
      linger_(loop) {}

Status AgentLink::open() {
  return supervisor_.open([this](std::uint32_t events) { on_supervisor(events); });
}

BootstrapRequest AgentLink::request(bool for_sh) const {
  return {options_.image.builds, attempt_.nonce, attempt_.forced, options_.image.arguments, for_sh};
}

os::Fd AgentLink::release() {
  state_ = State::kClosed;
  return supervisor_.release();
}

// A cached agent that has proved broken is replaced by the script, which asks for a fresh copy.
std::vector<std::string> AgentLink::cached_words() const {
  return attempt_.forced ? std::vector<std::string>() : bootstrap_words(request());
}

void AgentLink::report(Stage stage, std::string_view detail) const {
  if (options_.observer) options_.observer(options_.host_index, stage, detail);
}

// --- the supervisor's end ------------------------------------------------------------------------

void AgentLink::on_supervisor(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_to_supervisor();
  const bool closed = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (state_ == State::kRunning) {
    // What it wrote before it closed its end is all there: no more than the socket holds.
    if (closed || (events & EPOLLIN) != 0) {
      supervisor_.read_into(to_remote_, closed ? kNoLimit : kWindow);
    }
  } else if (closed || (events & EPOLLRDHUP) != 0) {
    supervisor_.set_at_end();
  }
  if (closed) supervisor_.set_gone();
  if (supervisor_.at_end() && state_ < State::kRunning) {
    finish();
  } else if (supervisor_.gone()) {
    linger();
  }
  watch_supervisor();
  deliver();
}

// The supervisor is gone; what it wrote last is still delivered, if the far side takes it.
void AgentLink::linger() {
  if (state_ != State::kRunning || outgoing().empty()) return finish();
  if (linger_.is_set()) return;
  linger_.set(kLinger, [this] {
    finish();
    deliver();
  });
}

void AgentLink::write_to_supervisor() {
  supervisor_.write();
  if (state_ == State::kEnding && supervisor_.waiting() == 0) finish();
  watch_supervisor();
}

// While the queue to the host is full, nothing is read: the socket fills up, and the supervisor
// waits. Its end is not watched for either then, since epoll would report a half-closed socket
// again and again while its last bytes have to wait.
void AgentLink::watch_supervisor() {
  const bool running = state_ == State::kRunning;
  const bool room = to_remote_.own_size() < kWindow;
  supervisor_.update_watch(running && room, !running || room);
}

void AgentLink::finish() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  supervisor_.close();
  notify();
}

// Calls the carrier once, when the call that is under way has returned.
void AgentLink::notify() {
  if (!notice_.is_set() && !finished_) notice_.set(Milliseconds(0), [this] { deliver(); });
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
  if (state_ >= State::kEnding) return kDiscardSize;
  return supervisor_.waiting() < kWindow ? kWindow - supervisor_.waiting() : 0;
}

bool AgentLink::overfull() const { return supervisor_.waiting() >= 4 * kWindow; }

void AgentLink::on_remote_output(std::string_view bytes) {
  if (restarting_ || ended()) return;  // from a command that is given up
  if (state_ == State::kBootstrap) {
    follow_dialogue(bytes);
  } else if (state_ == State::kGreeting) {
    attempt_.greeting.append(bytes);
    on_greeting();
  } else {
    pass_on(bytes);
  }
  write_to_supervisor();
}

void AgentLink::on_remote_errors(std::string_view bytes) {
  attempt_.errors.append(bytes);
  const std::size_t size = attempt_.errors.size();
  if (size > kMaxErrors) attempt_.errors.erase(0, size - kMaxErrors);
}

void AgentLink::follow_dialogue(std::string_view bytes) {
  auto event = attempt_.dialogue.feed(bytes);
  while (state_ == State::kBootstrap && !restarting_) {
    if (std::holds_alternative<BootstrapDialogue::Listening>(event)) return;
    if (const auto* need = std::get_if<BootstrapDialogue::Need>(&event)) {
      on_need(*need);
    } else if (const auto* other = std::get_if<BootstrapDialogue::OtherMachine>(&event)) {
      return fail(no_build_for(other->machine, options_.image.machines));
    } else if (const auto* failed = std::get_if<BootstrapDialogue::Failed>(&event)) {
      const bool full = is_disk_full(failed->directories);
      return fail({std::string(full ? failure::kDiskFull : failure::kCache),
                   "no directory can hold the agent: " + unfit_text(failed->directories),
                   full ? "free some space there, or set XDG_CACHE_HOME for that account"
                        : "make one of them usable, or set XDG_CACHE_HOME for that account"});
    } else {
      attempt_.greeting = std::move(std::get<BootstrapDialogue::Started>(event).rest);
      state_ = State::kGreeting;
      return on_greeting();
    }
    event = attempt_.dialogue.feed({});
  }
}

void AgentLink::on_need(const BootstrapDialogue::Need& need) {
  const auto& builds = options_.image.builds;
  const auto build =
      need.machine.empty()
          ? builds.begin()
          : std::find_if(builds.begin(), builds.end(),
                         [&need](const AgentBuild& each) { return each.machine == need.machine; });
  if (build == builds.end()) {
    to_remote_.append(transfer_refusal());
    return fail(no_build_for(need.machine, options_.image.machines));
  }
  if (++attempt_.needs > kMaxNeeds || to_remote_.shipping()) {
    return fail({std::string(failure::kAgent), "kept requesting the agent", ""});
  }
  report(Stage::kShip, need.directory);
  const auto raw = options_.payloads->get(build->path, false);
  auto payload = options_.payloads->get(build->path, need.gzip);
  if (!raw || !payload) {
    return fail({std::string(failure::kAgent),
                 "the agent cannot be sent: " + (raw ? payload : raw).error().message, ""});
  }
  if (raw->bytes->size() != build->size_bytes) {
    return fail({std::string(failure::kAgent),
                 "the agent cannot be sent: " + build->path + kReplaced, kStartAgain});
  }
  to_remote_.append(transfer_header(payload->gzip, payload->bytes->size()));
  to_remote_.ship(std::move(payload->bytes));
  notify();
}

// The first frame of an agent is Hello. An agent that was just sent reports its own hash, which
// distinguishes a copy that was damaged on its way from a host that cannot run it.
void AgentLink::on_greeting() {
  std::string& greeting = attempt_.greeting;
  if (greeting.size() < kFrameHeaderSize) return;
  std::string_view header = greeting;
  const std::size_t length = *read_u32(header);
  const bool hello = header.front() == static_cast<char>(FrameType::kHello);
  if (hello && length <= kMaxGreeting) {
    if (greeting.size() < kFrameHeaderSize + length) return;
    const auto message = decode<Hello>(std::string_view(greeting).substr(kFrameHeaderSize, length));
    if (message && !message->agent_sha256.empty() &&
        !has_build(options_.image, message->agent_sha256)) {
      if (!attempt_.forced) return restart("its hash does not match its name");
      return fail({std::string(failure::kAgent),
                   "the agent was corrupted on the way: its SHA-256 is " + message->agent_sha256,
                   "check that host's memory and disk; " + std::string(kStartAgain)});
    }
  }
  state_ = State::kRunning;
  to_remote_.drop_payload();
  report(Stage::kAgent);
  supervisor_.append(kAgentMagic);
  pass_on(greeting);
  greeting.clear();
  greeting.shrink_to_fit();
  notify();
}

void AgentLink::pass_on(std::string_view bytes) {
  supervisor_.append(bytes);
  frames_.pass(bytes);
}

void AgentLink::restart(std::string_view why) {
  report(Stage::kShell, "the cached agent is replaced: " + std::string(why));
  restarting_ = true;
  attempt_ = Attempt(/*fresh_copy=*/true);
  to_remote_.clear();
  state_ = State::kBootstrap;
  notify();
}

void AgentLink::fail_before_start(const RemoteEnd& end) {
  const std::string how = describe(end) + attempt_.remote_words();
  if (!end.link_error.empty()) {
    const std::string_view known = class_of_ssh_words(attempt_.errors);
    return fail({std::string(known.empty() ? options_.lost_class : known), how, ""});
  }
  if (state_ == State::kGreeting || attempt_.dialogue.asked()) {
    return fail({std::string(failure::kAgent), "the agent did not start: " + how,
                 "check for a full disk, a security policy or a missing kernel feature there"});
  }
  if (means_no_shell(end, attempt_.dialogue.noise() + attempt_.errors) &&
      options_.shell_class == failure::kRemoteShell) {
    return fail({std::string(failure::kNoShell), "its account has no usable login shell: " + how,
                 "use another account (-H user@host), or give this one a shell"});
  }
  fail({std::string(options_.shell_class), "the agent was not started: " + how,
        options_.shell_advice});
}

void AgentLink::on_remote_end(const RemoteEnd& end) {
  if (state_ >= State::kEnding || restarting_) return;
  if (state_ != State::kRunning) {
    // A cached agent that cannot start and a shell that cannot look alike: once, a fresh copy is
    // tried.
    const bool may_be_the_copy =
        !attempt_.forced && !attempt_.dialogue.asked() && end.link_error.empty();
    if (may_be_the_copy) return restart(describe(end));
    return fail_before_start(end);
  }
  const bool is_cut = !frames_.between_frames();
  if ((is_cut || !frames_.has_last_frame()) && !supervisor_.gone()) {
    std::string message = "the agent is gone: " + describe(end);
    if (!trim(attempt_.errors).empty()) message += "; it said: " + last_words(attempt_.errors);
    if (is_cut) {
      // A frame of ours can only follow a whole one: the supervisor just sees the stream end.
      os::log_warn("horarun", options_.host + ": " + message);
    } else {
      append_failure({std::string(failure::kHostLost), std::move(message), ""});
    }
  }
  state_ = State::kEnding;
  write_to_supervisor();
}

void AgentLink::sent(std::size_t count) {
  to_remote_.pop(count);
  if (state_ != State::kRunning) return;
  if (supervisor_.gone() && outgoing().empty()) {
    finish();
    return notify();
  }
  watch_supervisor();
}

bool AgentLink::wants_end_of_input() const {
  return state_ == State::kRunning && supervisor_.at_end() && outgoing().empty();
}

// Every failure of a transport names the host as the transport reached it.
void AgentLink::append_failure(Failure failure) {
  if (failure.subject.empty()) failure.subject = options_.host;
  supervisor_.append(encode_frame(fit(failure)));
}

void AgentLink::fail(const Failure& failure) {
  if (state_ >= State::kEnding) return;
  if (state_ != State::kRunning) supervisor_.append(kAgentMagic);
  append_failure(failure);
  state_ = State::kEnding;
  restarting_ = false;
  write_to_supervisor();
  notify();
}

// --- what passes ---------------------------------------------------------------------------------

// A header may arrive in pieces, a payload is only counted: the stream passes once, and nothing of
// it is kept.
void FrameBoundaries::pass(std::string_view bytes) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const std::size_t part = std::min(left_, bytes.size());
      left_ -= part;
      bytes.remove_prefix(part);
      continue;
    }
    const std::size_t part = std::min(kFrameHeaderSize - header_.size(), bytes.size());
    header_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (header_.size() < kFrameHeaderSize) return;
    std::string_view header = header_;
    left_ = *read_u32(header);
    last_type_ = static_cast<FrameType>(header.front());
    header_.clear();
  }
}

Result<AgentPayloads::Agent> AgentPayloads::read(const std::string& path) {
  auto raw = os::read_file(path);
  if (!raw) return std::move(raw).error().with_context("the agent");
  if (raw->empty()) return make_error(ErrorCode::kNotFound, "the agent " + path + " is empty");
  Agent agent;
  if (auto packed = os::read_file(path + ".gz"); packed && is_packed_from(*packed, *raw)) {
    agent.packed = std::make_shared<const std::string>(*std::move(packed));
  }
  agent.raw = std::make_shared<const std::string>(*std::move(raw));
  return agent;
}

// Other hosts that ask meanwhile wait for the lock: they need the same bytes.
Result<AgentPayloads::Payload> AgentPayloads::get(const std::string& path, bool takes_gzip) {
  std::lock_guard lock(mutex_);
  auto found = agents_.find(path);
  if (found == agents_.end()) {
    auto agent = read(path);
    if (!agent) return std::move(agent).error();
    found = agents_.emplace(path, *std::move(agent)).first;
  }
  const bool gzip = takes_gzip && found->second.packed != nullptr;
  return Payload{gzip ? found->second.packed : found->second.raw, gzip};
}

}  // namespace hora::launcher
