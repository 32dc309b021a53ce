// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/attendance.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "rendezvous/base/text.h"
#include "rendezvous/contract/rank_hosts.h"
#include "rendezvous/contract/store_keys.h"

namespace hora::collectives {

namespace {

// For one request to the store. Those who wait have come to an end by then, or go on waiting.
constexpr std::chrono::seconds kAskPatience{2};
// Named in a message for people; a large job may miss thousands.
constexpr std::size_t kMostNamed = 16;

Deadline soon() { return Clock::now() + kAskPatience; }

std::string list(std::vector<int> ranks) {
  const bool all = ranks.size() <= kMostNamed;
  if (!all) ranks.resize(kMostNamed);
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return join(names, ", ") + (all ? "" : ", ...");
}

}  // namespace

// Names with a slash would be places of the store.
Attendance::Attendance(rendezvous::Store& store, const std::string& meeting_key, int rank, int size)
    : store_(store),
      place_(meeting_key + "-came"),
      told_key_(meeting_key + "-missing"),
      rank_(rank),
      size_(size) {
  std::replace(place_.begin(), place_.end(), '/', '-');
}

void Attendance::leave_note() {
  if (noted_) return;
  noted_ = true;
  static_cast<void>(store_.set(place_ + "/" + std::to_string(rank_), "here", soon()));
}

Error Attendance::give_up(const std::vector<int>& unseen) {
  Error error = describe(unseen);
  static_cast<void>(store_.set(told_key_, error.message, soon()));
  return error;
}

// Others that waited for the same rank as long may be doing this at the same time. What they find
// out is the same, so it does not matter whose words stay.
Error Attendance::give_up() {
  if (auto error = told()) return *error;
  std::vector<int> others(static_cast<std::size_t>(size_));
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + rank_);
  return give_up(others);
}

std::optional<Error> Attendance::told() {
  const auto text = store_.get(told_key_, soon());
  if (!text || !text->has_value()) return std::nullopt;
  return make_error(ErrorCode::kTimedOut, **text);
}

Error Attendance::describe(const std::vector<int>& unseen) const {
  std::vector<int> missing = unseen;
  if (const auto notes = store_.gather(place_, 0, soon())) {
    std::set<std::string, std::less<>> came;
    for (const auto& [name, note] : *notes) came.insert(name);
    std::erase_if(missing, [&](int rank) { return came.count(std::to_string(rank)) > 0; });
  }
  // All of them run. Something is between them and rank 0, a firewall perhaps.
  const bool cut_off = missing.empty();
  const std::vector<int>& named = cut_off ? unseen : missing;
  std::string text = std::string("timed out waiting for ") +
                     (named.size() == 1 ? "rank " : "ranks ") + list(named) +
                     (cut_off ? (named.size() == 1 ? " to connect, which has called init()"
                                                   : " to connect, which have called init()")
                              : " to start") +
                     " (HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit)";
  const std::string key =
      std::string(rendezvous::scope::kControl) + "/" + std::string(rendezvous::kRankHostsKey);
  // Only a launcher that started the ranks can say where those are that nobody has seen.
  if (const auto hosts = store_.get(key, soon()); hosts && hosts->has_value()) {
    const std::vector<int> first(
        named.begin(),
        named.begin() + static_cast<std::ptrdiff_t>(std::min(named.size(), kMostNamed)));
    const std::string where = rendezvous::name_hosts_of(**hosts, first);
    if (!where.empty()) text += ": " + where;
  }
  return make_error(ErrorCode::kTimedOut, text);
}

}  // namespace hora::collectives
