// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/agent_conversation.h"

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/protocol/agent_limits.h"
#include "launcher/protocol/cbor.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostFrameParts = 1u << 18;  // of any agent's message, stack reports included

std::string_view name_of(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "hello";
    case FrameType::kProbeResult:
      return "probe result";
    case FrameType::kReady:
      return "ready";
    case FrameType::kStarted:
      return "started";
    case FrameType::kOutput:
      return "output";
    case FrameType::kOutputEnd:
      return "end of output";
    case FrameType::kExit:
      return "exit of a rank";
    case FrameType::kGoodbye:
      return "goodbye";
    case FrameType::kFailure:
      return "failure";
    case FrameType::kLog:
      return "log line";
    case FrameType::kInputAck:
      return "input acknowledgement";
    case FrameType::kStacks:
      return "stack report";
    case FrameType::kProgress:
      return "progress";
    case FrameType::kGpuFault:
      return "GPU fault";
    case FrameType::kDelivered:
      return "delivery report";
    case FrameType::kTreeState:
      return "state of a folder";
    case FrameType::kSuspend:
      return "suspension";
    case FrameType::kRanksGone:
      return "end of the ranks";
    case FrameType::kRelayPort:
      return "port of the relay";
    case FrameType::kRelayOpen:
      return "relayed connection";
    case FrameType::kRelayData:
      return "relayed bytes";
    case FrameType::kRelayTaken:
      return "relay acknowledgement";
    case FrameType::kHeartbeat:
      return "heartbeat";
    default:
      return {};
  }
}

Error violation(std::string what) { return make_error(ErrorCode::kFailed, std::move(what)); }

// An agent may be any program: its texts reach the user's terminal and files. A message within its
// limits, with texts that can be shown.
template <typename Message>
Result<Message> sound(Result<Message> message, FrameType type) {
  if (!message) return std::move(message).error();
  if (const Status good = check(*message); !good) {
    return violation(std::string(name_of(type)) + ": " + good.error().message);
  }
  return clean(std::move(*message));
}

template <typename Message>
Result<AgentMessage> as_message(Result<Message> message) {
  if (!message) return std::move(message).error();
  return AgentMessage(std::move(*message));
}

std::size_t addresses_of(const Probe& probe) {
  std::size_t count = 0;
  for (const ProbeTarget& target : probe.targets) count += target.addresses.size();
  return count;
}

// One answer for each address, in the order asked.
bool answers(const ProbeResult& result, const Probe& probe) {
  auto answer = result.answers.begin();
  for (const ProbeTarget& target : probe.targets) {
    for (const std::string& address : target.addresses) {
      if (answer == result.answers.end() || answer->host_index != target.host_index ||
          answer->address != address) {
        return false;
      }
      ++answer;
    }
  }
  return answer == result.answers.end();
}

}  // namespace

// --- what it was sent ----------------------------------------------------------------------------

void AgentConversation::sent(const Probe& probe) { probe_ = probe; }

void AgentConversation::sent(const OfferTree& tree) { tree_ = tree; }

void AgentConversation::sent(const KeepDelivery& keep) { deliveries_[keep.id] = 0; }

void AgentConversation::sent(const FetchDelivery& fetch) {
  deliveries_[fetch.id] = fetch.sources.size();
}

// Only the ranks that it was ordered to start are its to speak of.
void AgentConversation::sent(const HostOrder& order) {
  ordered_ = true;
  for (const RankOrder& rank : order.ranks) ranks_[rank.rank] = {};
  output_credit_ = static_cast<std::size_t>(std::max<std::int64_t>(order.output_window_bytes, 0));
}

void AgentConversation::sent(FrameType type, std::string_view payload) {
  switch (type) {
    case FrameType::kStart:
      start_sent_ = true;
      return;
    case FrameType::kDump:
      ++dumps_;
      return;
    case FrameType::kSuspend:
      ++suspends_;
      return;
    case FrameType::kRelay:
      relay_asked_ = true;
      return;
    // Acknowledged bytes allow new ones: the window bounds what the launcher must hold.
    case FrameType::kOutputAck:
      if (const auto bytes = read_u32(payload)) output_credit_ += *bytes;
      return;
    case FrameType::kInput:
      if (const auto rank = read_u32(payload)) {
        const auto found = ranks_.find(static_cast<int>(*rank));
        if (found != ranks_.end()) found->second.input += payload.size();
      }
      return;
    default:
      return;
  }
}

// --- whether it may speak ------------------------------------------------------------------------

void AgentConversation::feed(std::string_view bytes) {
  if (!over_) frames_.feed(bytes);
}

Result<std::optional<AgentMessage>> AgentConversation::next() {
  while (!over_) {
    // By the header alone, so that nothing is stored for a message that may not come.
    if (const auto header = frames_.header()) HORA_TRY(admit(*header));
    auto frame = frames_.next();
    if (!frame) return std::move(frame).error();
    if (!frame->has_value()) break;
    last_ = (*frame)->type;
    if ((*frame)->type == FrameType::kHeartbeat) continue;
    auto message = read(std::move(**frame));
    if (!message) return std::move(message).error();
    return std::optional<AgentMessage>(std::move(*message));
  }
  return std::optional<AgentMessage>();
}

std::string_view AgentConversation::last_words() const { return name_of(last_); }

Status AgentConversation::admit(const FrameHeader& header) const {
  const std::string name(name_of(header.type));
  if (name.empty()) {
    return violation("a frame of type " + std::to_string(static_cast<int>(header.type)) +
                     ", which no agent sends");
  }
  if (!has_turn(header.type)) return violation(name + ": out of turn");
  const std::size_t most = longest(header.type);
  if (header.length > most) {
    return violation(name + ": " + std::to_string(header.length) + " bytes, where " +
                     std::to_string(most) + " are the most");
  }
  return Ok{};
}

bool AgentConversation::has_turn(FrameType type) const {
  // At any time: a host may find out late that it cannot go on.
  if (type == FrameType::kFailure) return true;
  if (!greeted_) return type == FrameType::kHello;
  switch (type) {
    case FrameType::kHello:
      return false;  // once
    case FrameType::kProbeResult:
      return probe_.has_value();
    case FrameType::kReady:
      return ordered_ && !said_.ready;
    case FrameType::kStarted:
      return start_sent_ && !said_.started;
    case FrameType::kOutput:
    case FrameType::kOutputEnd:
    case FrameType::kExit:
    case FrameType::kProgress:
      return said_.started;
    case FrameType::kRanksGone:
      return said_.started && !said_.ranks_gone;
    case FrameType::kInputAck:
      return ordered_;
    case FrameType::kGpuFault:
      return ordered_ && gpu_faults_ < kMostGpuFaults;
    case FrameType::kDelivered:
      return !deliveries_.empty();
    case FrameType::kTreeState:
      return tree_.has_value();
    case FrameType::kStacks:
      return dumps_ > 0;
    case FrameType::kSuspend:
      return suspends_ > 0;
    case FrameType::kRelayPort:
      return relay_asked_ && !relay_open_;
    case FrameType::kRelayOpen:
    case FrameType::kRelayData:
    case FrameType::kRelayTaken:
      return relay_open_;
    case FrameType::kLog:
      return log_lines_ < kMostLogLines;
    default:
      return true;  // kHeartbeat, kGoodbye
  }
}

// Of the payload, in bytes.
std::size_t AgentConversation::longest(FrameType type) const {
  switch (type) {
    case FrameType::kHello:
      return kLargestHello;
    case FrameType::kProbeResult:
      return (1 + addresses_of(*probe_)) * kLargestAnswer;
    case FrameType::kReady:
      return kMostPath;
    case FrameType::kStarted:
      return (kMostNotes + 2 * ranks_.size()) * kLargestNote;
    case FrameType::kOutput:
      return RankOutput::kHead + output_credit_;
    case FrameType::kOutputEnd:
      return RankOutput::kHead;
    case FrameType::kExit:
      return kLargestExit;
    case FrameType::kGoodbye:
      return kLargestGoodbye;
    case FrameType::kFailure:
      return kLargestFailure;
    case FrameType::kLog:
      return kLargestLogLine;
    case FrameType::kInputAck:
      return 8;
    case FrameType::kRelayData:
      return RelayFrame::kHead + kMostRelayed;
    case FrameType::kRelayPort:
    case FrameType::kRelayOpen:
    case FrameType::kRelayTaken:
      return RelayFrame::kHead;
    case FrameType::kStacks:
      return kLargestStackReport;
    case FrameType::kProgress:
      return 12;
    case FrameType::kGpuFault:
      return kLargestGpuFault;
    case FrameType::kDelivered:
      return kLargestDeliveryReport;
    case FrameType::kTreeState:
      return (1 + tree_->parts.size() + tree_->environment.size()) * kLargestPartName;
    default:
      return 0;  // kRanksGone, kSuspend, kHeartbeat
  }
}

// --- what it says --------------------------------------------------------------------------------

Result<AgentMessage> AgentConversation::read(Frame frame) {
  const std::string_view payload = frame.payload;
  switch (frame.type) {
    case FrameType::kHello:
      greeted_ = true;
      return as_message(sound(decode_hello(payload), frame.type));
    case FrameType::kProbeResult:
      return read_probe_result(payload);
    case FrameType::kReady:
      said_.ready = true;
      // A name that would not survive the journey into a command line names nothing.
      return AgentMessage(AgentReady{payload == visible_line(payload) ? std::string(payload) : ""});
    case FrameType::kStarted:
      return read_started(payload);
    case FrameType::kOutput:
      return read_output(std::move(frame.payload));
    case FrameType::kOutputEnd:
      return read_output_end(payload);
    case FrameType::kExit:
      return read_exit(payload);
    case FrameType::kInputAck:
      return read_input_taken(payload);
    case FrameType::kProgress:
      return read_progress(payload);
    case FrameType::kStacks:
      return read_stacks(payload);
    case FrameType::kGpuFault:
      return read_gpu_fault(payload);
    case FrameType::kDelivered:
      return read_delivery_report(payload);
    case FrameType::kTreeState:
      return read_tree_state(payload);
    case FrameType::kRanksGone:
      said_.ranks_gone = true;
      return AgentMessage(RanksGone{});
    case FrameType::kSuspend:
      --suspends_;
      return AgentMessage(AgentSuspended{});
    case FrameType::kRelayPort:
      relay_open_ = true;
      return read_relay(std::move(frame));
    case FrameType::kRelayOpen:
    case FrameType::kRelayData:
    case FrameType::kRelayTaken:
      return read_relay(std::move(frame));
    case FrameType::kLog:
      ++log_lines_;
      return as_message(sound(decode_log_line(payload), frame.type));
    case FrameType::kFailure:
      return as_message(sound(decode_failure(payload), frame.type));
    default:
      over_ = true;  // kGoodbye: admit() lets nothing else come here
      return as_message(sound(decode_goodbye(payload), frame.type));
  }
}

Result<AgentMessage> AgentConversation::read_probe_result(std::string_view payload) {
  // Each question has one answer; a second one would be out of turn.
  const Probe asked = *std::exchange(probe_, std::nullopt);
  auto result = sound(decode_probe_result(payload), FrameType::kProbeResult);
  if (result && !answers(*result, asked)) {
    return violation("probe result: it answers something else than was asked");
  }
  return as_message(std::move(result));
}

Result<AgentMessage> AgentConversation::read_started(std::string_view payload) {
  said_.started = true;
  auto started = sound(decode_started(payload), FrameType::kStarted);
  if (!started) return std::move(started).error();
  // A process number of another host's rank would make a later signal hit the wrong one.
  std::set<int> seen;
  for (const auto& [rank, pid] : started->pids) {
    if (ranks_.count(rank) == 0) return violation("started: a rank that is not of this host");
    if (!seen.insert(rank).second) return violation("started: a rank twice");
  }
  return AgentMessage(std::move(*started));
}

Result<AgentConversation::Rank*> AgentConversation::rank_of(std::string_view& payload, int& rank) {
  const auto number = read_u32(payload);
  if (!number) return violation("it ends early");
  rank = static_cast<int>(*number);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return violation("of a rank that is not of this host");
  return &found->second;
}

Result<AgentMessage> AgentConversation::read_output(std::string payload) {
  RankOutput output;
  std::string_view rest = payload;
  const auto rank = rank_of(rest, output.rank);
  if (!rank) return rank.error().with_context("output");
  if (rest.size() < 2) return violation("output: there is none");
  output.stream = static_cast<unsigned char>(rest.front());
  if (output.stream != 1 && output.stream != 2) return violation("output: on an unknown stream");
  if ((*rank)->ended[output.stream - 1]) return violation("output: behind its end");
  output.payload = std::move(payload);
  output_credit_ -= output.bytes().size();  // admit() has looked
  return AgentMessage(std::move(output));
}

Result<AgentMessage> AgentConversation::read_output_end(std::string_view payload) {
  RankOutputEnd end;
  const auto rank = rank_of(payload, end.rank);
  if (!rank) return rank.error().with_context("end of output");
  end.stream = payload.empty() ? 0 : payload.front();
  if (end.stream != 1 && end.stream != 2) return violation("end of output: of an unknown stream");
  if (std::exchange((*rank)->ended[end.stream - 1], true)) return violation("end of output: twice");
  return AgentMessage(end);
}

Result<AgentMessage> AgentConversation::read_exit(std::string_view payload) {
  auto exit = sound(decode_rank_exit(payload), FrameType::kExit);
  if (!exit) return std::move(exit).error();
  const auto rank = ranks_.find(exit->rank);
  if (rank == ranks_.end()) return violation("exit of a rank that is not of this host");
  if (std::exchange(rank->second.exited, true)) return violation("exit of a rank: twice");
  return AgentMessage(std::move(*exit));
}

Result<AgentMessage> AgentConversation::read_input_taken(std::string_view payload) {
  InputTaken taken;
  const auto rank = rank_of(payload, taken.rank);
  if (!rank) return rank.error().with_context("input acknowledgement");
  const auto bytes = read_u32(payload);
  // Credit that was never given would let the launcher read standard input without bound.
  if (!bytes || *bytes > (*rank)->input) {
    return violation("input acknowledgement: of more than was sent");
  }
  (*rank)->input -= *bytes;
  taken.bytes = *bytes;
  return AgentMessage(taken);
}

Result<AgentMessage> AgentConversation::read_progress(std::string_view payload) {
  RankProgress progress;
  for (std::uint32_t* count : {&progress.meeting, &progress.joined, &progress.worked}) {
    const auto number = read_u32(payload);
    if (!number) return violation("progress: it ends early");
    if (*number > ranks_.size()) return violation("progress: of more ranks than there are");
    *count = *number;
  }
  return AgentMessage(progress);
}

// Which connections there are is the relay's to know: it ignores numbers that it has not opened.
Result<AgentMessage> AgentConversation::read_relay(Frame frame) {
  std::string_view rest = frame.payload;
  const auto number = read_u32(rest);
  if (!number) return violation(std::string(name_of(frame.type)) + ": it ends early");
  if (frame.type == FrameType::kRelayPort && *number > 65'535) {
    return violation("port of the relay: " + std::to_string(*number));
  }
  return AgentMessage(RelayFrame{frame.type, *number, std::move(frame.payload)});
}

Result<AgentMessage> AgentConversation::read_stacks(std::string_view payload) {
  --dumps_;
  if (const Status shape = check_cbor_shape(payload, kMostFrameParts); !shape) {
    return shape.error().with_context("stack report");
  }
  auto report = sound(decode_stack_report(payload), FrameType::kStacks);
  if (!report) return std::move(report).error();
  for (const ProcessStacks& process : report->processes) {
    if (ranks_.count(process.rank) == 0) {
      return violation("stack report: of a rank that is not of this host");
    }
  }
  return AgentMessage(std::move(*report));
}

// A host that reports parts that were not asked for would make others fetch them from it.
Result<AgentMessage> AgentConversation::read_delivery_report(std::string_view payload) {
  auto report = sound(decode_delivery_report(payload), FrameType::kDelivered);
  if (!report) return std::move(report).error();
  const auto asked = deliveries_.find(report->id);
  if (asked == deliveries_.end())
    return violation("delivery report: of parts that were not announced");
  if (report->refusals.size() > asked->second) {
    return violation("delivery report: of more sources than were announced");
  }
  deliveries_.erase(asked);
  return AgentMessage(std::move(*report));
}

// Its parts, each once: parts outside of the folder were not packed.
Result<AgentMessage> AgentConversation::read_tree_state(std::string_view payload) {
  auto state = decode_tree_state(payload);
  if (!state) return std::move(state).error();
  std::set<std::string> offered(tree_->parts.begin(), tree_->parts.end());
  offered.insert(tree_->environment.begin(), tree_->environment.end());
  for (const std::string& part : state->missing) {
    if (offered.erase(part) == 0) {
      return violation("state of a folder: it misses what the folder does not have");
    }
  }
  tree_.reset();
  return AgentMessage(std::move(*state));
}

Result<AgentMessage> AgentConversation::read_gpu_fault(std::string_view payload) {
  ++gpu_faults_;
  auto fault = sound(decode_gpu_fault(payload), FrameType::kGpuFault);
  if (!fault) return std::move(fault).error();
  if (fault->rank >= 0 && ranks_.count(fault->rank) == 0) {
    return violation("GPU fault: of a rank that is not of this host");
  }
  return AgentMessage(std::move(*fault));
}

}  // namespace hora::launcher
