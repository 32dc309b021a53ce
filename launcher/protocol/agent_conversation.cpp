// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/agent_conversation.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

namespace hora::launcher {

namespace {

// Calls `visit` with the message that an agent sends in such a frame. False: none.
template <typename Visit>
bool visit_agent_type(FrameType type, Visit&& visit) {
  return visit_type(std::type_identity<AgentMessage>{}, type, visit) ||
         visit_type(std::type_identity<std::variant<Heartbeat>>{}, type, visit);
}

std::string_view name_of_type(FrameType type) {
  std::string_view name;
  visit_agent_type(
      type, [&name]<typename Message>(std::type_identity<Message>) { name = name_of<Message>(); });
  return name;
}

template <typename Message>
Error violation(const Message&, std::string_view what) {
  return malformed(name_of<Message>(), what);
}

constexpr std::string_view kOtherRank = "of a rank that is not of this host";

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

// Only the ranks that it was ordered to start are its to speak of.
void AgentConversation::note(const HostOrder& order) {
  for (const RankOrder& rank : order.ranks) ranks_[rank.rank] = {};
  output_credit_ = static_cast<std::size_t>(std::max<std::int64_t>(order.output_window_bytes, 0));
}

// Acknowledged bytes allow new ones: the window bounds what the launcher must hold.
void AgentConversation::note(const OutputTaken& taken) { output_credit_ += taken.bytes; }

void AgentConversation::note(const RankInput& input) {
  if (Rank* rank = find(input.rank)) rank->input += input.bytes.size();
}

// --- whether it may speak ------------------------------------------------------------------------

void AgentConversation::feed(std::string_view bytes) {
  if (!over_) frames_.feed(bytes);
}

std::string_view AgentConversation::last_words() const { return name_of_type(last_); }

Status AgentConversation::admit(const FrameHeader& header) const {
  Status admitted = make_error(ErrorCode::kFailed,
                               "a frame of type " + std::to_string(static_cast<int>(header.type)) +
                                   ", which no agent sends");
  visit_agent_type(header.type, [&]<typename Message>(std::type_identity<Message>) {
    if (!turns_.may_come(Message::kRule)) {
      admitted = malformed(name_of<Message>(), "out of turn");
    } else if (const std::size_t most = longest<Message>(); header.length > most) {
      admitted = malformed(name_of<Message>(), std::to_string(header.length) + " bytes, where " +
                                                   std::to_string(most) + " are the most");
    } else {
      admitted = Ok{};
    }
  });
  return admitted;
}

// Of the payload, in bytes.
template <typename Message>
std::size_t AgentConversation::longest() const {
  constexpr MessageRule kRule = Message::kRule;
  if constexpr (std::is_same_v<Message, ProbeResult>) {
    return (1 + addresses_of(probe_)) * kLargestAnswer;
  } else if constexpr (std::is_same_v<Message, Started>) {
    return (kMostNotes + 2 * ranks_.size()) * kLargestNote;
  } else if constexpr (std::is_same_v<Message, RankSamples>) {
    return (1 + ranks_.size()) * kLargestSample;
  } else if constexpr (std::is_same_v<Message, TreeState>) {
    return (1 + tree_.parts.size() + tree_.environment.size()) * kLargestPartName;
  } else if constexpr (std::is_same_v<Message, RankOutput>) {
    return size_of_numbers<Message>() + output_credit_;
  } else if constexpr (kRule.layout == Layout::kNumbers) {
    return size_of_numbers<Message>() + kRule.longest;
  } else {
    static_assert(kRule.longest > 0, "an agent's message has a limit");
    return kRule.longest;
  }
}

// --- what it says --------------------------------------------------------------------------------

AgentConversation::Rank* AgentConversation::find(int rank) {
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? nullptr : &found->second;
}

Status AgentConversation::accept(const ProbeResult& result) {
  if (!answers(result, probe_))
    return violation(result, "it answers something else than was asked");
  return Ok{};
}

// A process number of another host's rank would make a later signal hit the wrong one.
Status AgentConversation::accept(const Started& started) {
  std::set<int> seen;
  for (const auto& [rank, pid] : started.pids) {
    if (!find(rank)) return violation(started, kOtherRank);
    if (!seen.insert(rank).second) return violation(started, "a rank twice");
  }
  return Ok{};
}

Status AgentConversation::accept(const RankOutput& output) {
  const Rank* rank = find(output.rank);
  if (!rank) return violation(output, kOtherRank);
  if (output.bytes.empty()) return violation(output, "there is none");
  if (rank->ended[output.stream - 1]) return violation(output, "behind its end");
  output_credit_ -= output.bytes.size();  // admit() has looked
  return Ok{};
}

Status AgentConversation::accept(const RankOutputEnd& end) {
  Rank* rank = find(end.rank);
  if (!rank) return violation(end, kOtherRank);
  if (std::exchange(rank->ended[end.stream - 1], true)) return violation(end, "twice");
  return Ok{};
}

Status AgentConversation::accept(const RankExit& exit) {
  Rank* rank = find(exit.rank);
  if (!rank) return violation(exit, kOtherRank);
  if (std::exchange(rank->exited, true)) return violation(exit, "twice");
  return Ok{};
}

// Credit that was never given would let the launcher read standard input without bound.
Status AgentConversation::accept(const InputTaken& taken) {
  Rank* rank = find(taken.rank);
  if (!rank) return violation(taken, kOtherRank);
  if (taken.bytes > rank->input) return violation(taken, "of more than was sent");
  rank->input -= taken.bytes;
  return Ok{};
}

Status AgentConversation::accept(const RankProgress& progress) {
  if (std::max({progress.meeting, progress.joined, progress.worked}) > ranks_.size()) {
    return violation(progress, "of more ranks than there are");
  }
  return Ok{};
}

Status AgentConversation::accept(const StackReport& report) {
  for (const ProcessStacks& process : report.processes) {
    if (!find(process.rank)) return violation(report, kOtherRank);
  }
  return Ok{};
}

Status AgentConversation::accept(const RankSamples& samples) {
  std::set<int> seen;
  for (const RankSample& sample : samples.ranks) {
    if (!find(sample.rank)) return violation(samples, kOtherRank);
    if (!seen.insert(sample.rank).second) return violation(samples, "a rank twice");
  }
  return Ok{};
}

Status AgentConversation::accept(const GpuFault& fault) {
  if (fault.rank >= 0 && !find(fault.rank)) return violation(fault, kOtherRank);
  return Ok{};
}

// A host that reports parts that were not asked for would make others fetch them from it.
Status AgentConversation::accept(const DeliveryReport& report) {
  const auto asked = deliveries_.find(report.id);
  if (asked == deliveries_.end()) return violation(report, "of parts that were not announced");
  if (report.refusals.size() > asked->second) {
    return violation(report, "of more sources than were announced");
  }
  deliveries_.erase(asked);
  return Ok{};
}

// Its parts, each once: parts outside of the folder were not packed.
Status AgentConversation::accept(const TreeState& state) {
  std::set<std::string> offered(tree_.parts.begin(), tree_.parts.end());
  offered.insert(tree_.environment.begin(), tree_.environment.end());
  for (const std::string& part : state.missing) {
    if (offered.erase(part) == 0) {
      return violation(state, "it misses what the folder does not have");
    }
  }
  return Ok{};
}

Status AgentConversation::accept(const Goodbye&) {
  over_ = true;
  return Ok{};
}

}  // namespace hora::launcher
