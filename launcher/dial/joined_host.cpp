// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/joined_host.h"

#include <algorithm>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/little_endian.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kJoinWindow = 256 * 1024;  // that waits for the network

std::string head_of(std::uint32_t number) {
  std::string head;
  append_u32(head, number);
  return head;
}

}  // namespace

JoinedHost::JoinedHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options,
                       DialStream* stream, std::uint32_t number, bool starts_agents,
                       Clock::time_point deadline, Done done)
    : link_(loop, std::move(local), std::move(options), *this),
      stream_(stream),
      number_(number),
      starts_agents_(starts_agents),
      deadline_(deadline),
      done_(std::move(done)),
      start_timer_(loop) {}

// Given up, the command ends; the machine stays connected for the last word, or for another one.
JoinedHost::~JoinedHost() { stop(); }

// The deadline is that of the start alone. Afterwards the fleet's heartbeats watch over the agent.
void JoinedHost::begin() {
  if (!link_.open()) return link_finished();
  if (stream_ == nullptr) {
    return link_.fail({std::string(failure::kHostLost), "it has left before the job began", ""});
  }
  start_timer_.set(deadline_, [this] {
    if (link_.agent_started() || link_.ended()) return;
    link_.fail({std::string(failure::kAgent), "it did not start an agent in time", ""});
  });
  run();
}

// There is nothing to wait for: the machine queues bytes that arrive before its command has
// started.
void JoinedHost::run() {
  auto line = link_.command_line(/*for_sh=*/true);
  if (!line) return link_.fail({std::string(failure::kAgent), line.error().message, ""});
  link_.report(Stage::kShell);
  // A helper that finds no such agent runs the line, so both go out at once.
  const auto words = starts_agents_ ? link_.cached_words() : std::vector<std::string>();
  if (words.empty()) {
    stream_->send(DialFrameType::kRun, head_of(number_), *line);
  } else {
    stream_->send(DialFrameType::kStart, head_of(number_), encode_words(words) + *line);
  }
  running_ = true;
  input_ended_ = false;
}

void JoinedHost::stop() {
  if (stream_ == nullptr) return;
  if (std::exchange(running_, false)) stream_->send(DialFrameType::kStop, head_of(number_));
  stream_->listen(true);  // the next one's frames, and the end
}

void JoinedHost::on_frame(const DialFrame& frame) {
  std::string_view bytes = frame.payload;
  const auto number = read_u32(bytes);
  // The remaining output of a command that was given up.
  if (!number || *number != number_ || !running_) return;
  if (frame.type == DialFrameType::kOutput) {
    link_.on_remote_output(bytes);
  } else if (frame.type == DialFrameType::kErrors) {
    link_.on_remote_errors(bytes);
  } else if (frame.type == DialFrameType::kEnded) {
    running_ = false;
    RemoteEnd end;
    end.exit_status = static_cast<int>(read_u32(bytes).value_or(kExitClientFailed) & 0xff);
    link_.on_remote_end(end);
  }
  pump();
}

// The link knows what that means: an agent that had said goodbye is not missed.
void JoinedHost::on_lost(const std::string& why) {
  stream_ = nullptr;
  running_ = false;
  RemoteEnd end;
  end.link_error = "the connection to it was lost: " + why;
  link_.on_remote_end(end);
}

// Both directions: what the supervisor has written goes out while the network takes it, and the
// machine is listened to while the supervisor reads.
void JoinedHost::pump() {
  if (stream_ == nullptr) return;
  while (running_ && !link_.outgoing().empty() && stream_->waiting() < kJoinWindow) {
    const auto piece = link_.outgoing().substr(0, kDialPiece);
    stream_->send(DialFrameType::kInput, head_of(number_), piece);
    link_.sent(piece.size());
  }
  if (running_ && link_.wants_end_of_input() && !std::exchange(input_ended_, true)) {
    stream_->send(DialFrameType::kInputEnd, head_of(number_));
  }
  stream_->listen(link_.room() > 0);
}

void JoinedHost::link_changed() { pump(); }

// The connection stays; the number distinguishes the new command's frames from those of the old
// one.
void JoinedHost::link_restarts() {
  stop();
  ++number_;
  if (stream_ == nullptr) {
    return link_.fail({std::string(failure::kHostLost), "it has left before the job began", ""});
  }
  run();
}

// The supervisor has closed its end. An agent that has sent its goodbye has ended by now; any other
// one is ended.
void JoinedHost::link_finished() {
  start_timer_.cancel();
  stop();
  if (done_) std::exchange(done_, nullptr)();
}

}  // namespace hora::launcher
