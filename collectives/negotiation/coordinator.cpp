// SPDX-License-Identifier: Apache-2.0
// The life of an entry: the first rank's request creates it (entry_for), each rank's request marks
// that rank as arrived (add_in_full), and when all ranks of the set have arrived or joined it
// becomes ready, alone or with its group (ready_alone_or_in_group). take_ready() concludes it: it
// becomes a response, or an error when the ranks disagree. Requests by number take a shorter way
// (coordinator_counts.cpp) until something needs the whole request.
#include "collectives/negotiation/coordinator.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace hora::collectives {

void Coordinator::LastRequest::note(const Request& request, TimePoint now) {
  action = request.action;
  name = request.name;
  when = now;
}

Coordinator::Coordinator(int world_size)
    : world_size_(world_size), last_asked_(static_cast<std::size_t>(world_size)) {
  std::vector<std::int32_t> all;
  for (int rank = 0; rank < world_size; ++rank) all.push_back(rank);
  // The world is set 0, and the only set that can never be removed.
  next_set_ = 0;
  add_set(std::move(all));
}

std::int32_t Coordinator::add_set(std::vector<std::int32_t> ranks) {
  Set set;
  set.index_of.assign(static_cast<std::size_t>(world_size_), -1);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    set.index_of[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
  }
  set.joined.assign(ranks.size(), 0);
  set.ranks = std::move(ranks);
  sets_.emplace(next_set_, std::move(set));
  return next_set_++;
}

Coordinator::Entry& Coordinator::entry_for(Set& set, int rank, const Request& request,
                                           TimePoint now) {
  auto [place, inserted] = set.entries.try_emplace(request.name);
  Entry& entry = place->second;
  if (inserted) {
    entry.first = request;
    entry.first_rank = rank;
    entry.since = now;
    entry.has_arrived.assign(set.ranks.size(), 0);
    if (request.action == Action::kAllgather) entry.rows.assign(set.ranks.size(), 0);
    if (request.action == Action::kAlltoall) entry.splits.resize(set.ranks.size());
  } else {
    // Compared with the first rank's request only: equality is transitive. The first mismatch is
    // enough, and the rank still counts, since all ranks have to get the error.
    if (entry.mismatch.empty()) {
      entry.mismatch = describe_mismatch(entry.first_rank, entry.first, rank, request);
    }
    if (request.members != entry.first.members) {
      entry.torn_set = true;
      if (request.members) entry.other_set = request.members;
    }
    if (request.group != entry.first.group || request.group_size != entry.first.group_size) {
      entry.torn = true;
      if (!request.group.empty()) entry.other_group = request.group;
    }
  }
  return entry;
}

void Coordinator::add(int rank, Request request, TimePoint now) {
  last_asked_[static_cast<std::size_t>(rank)].note(request, now);
  // Ready as soon as one rank asks: one that leaves cannot wait for the others, and the others need
  // not know why it asks for a set.
  if (request.action == Action::kShutdown || request.action == Action::kProcessSetOf) {
    Response response;
    if (request.action == Action::kShutdown) response.numbers = {rank};
    response.agreed = std::move(request);
    immediate_.push_back(std::move(response));
    return;
  }
  const auto found = sets_.find(request.process_set);
  // The set was removed while the request was under way; its rank has ended it already.
  if (found == sets_.end()) return;
  Set& set = found->second;
  if (set.index_of[static_cast<std::size_t>(rank)] < 0) return;
  take_apart(set);
  // A count assumes that no rank has joined, so turn all counts into entries first.
  if (request.action == Action::kJoin) {
    spell_all_out(set);
    join(set, request.process_set, rank);
    return;
  }
  add_in_full(set, rank, std::move(request), now);
}

void Coordinator::add_in_full(Set& set, int rank, Request request, TimePoint now) {
  const int index = set.index_of[static_cast<std::size_t>(rank)];
  const std::string key = request.name;
  Entry& entry = entry_for(set, rank, request, now);
  const auto at = static_cast<std::size_t>(index);
  // A second request of the same rank, by number and in full, must not count twice.
  if (entry.has_arrived[at]) return;
  entry.has_arrived[at] = 1;
  entry.last_rank = rank;
  if (!entry.rows.empty() && !request.shape.empty()) entry.rows[at] = request.shape[0];
  if (!entry.splits.empty()) entry.splits[at] = std::move(request.splits);
  // joined_count stands for this rank already.
  if (!set.joined[at]) ++entry.arrived;
  arrive(set, key);
}

void Coordinator::arrive(Set& set, const std::string& key) {
  const Entry& entry = set.entries.at(key);
  // Ranks that have joined count for every entry.
  if (entry.arrived + set.joined_count == static_cast<int>(set.ranks.size())) {
    ready_alone_or_in_group(set, key);
  }
}

void Coordinator::ready_alone_or_in_group(Set& set, const std::string& key) {
  Entry& entry = set.entries.at(key);
  if (entry.order != 0) return;  // ready already: another rank has joined since
  entry.order = ++next_order_;
  // Record the joined ranks now: once all have joined they are back, perhaps before this is
  // concluded.
  for (std::size_t i = 0; i < set.joined.size(); ++i) {
    if (set.joined[i] && !entry.has_arrived[i]) {
      entry.joined.push_back(static_cast<std::int32_t>(i));
    }
  }
  if (entry.torn) {
    set.broken_groups[entry.first.group] = entry.mismatch;
    set.broken_groups[entry.other_group] = entry.mismatch;
  }
  if (entry.torn_set) {
    for (const Members& each : {entry.first.members, entry.other_set}) {
      if (each) set.broken_sets.emplace_back(each, entry.mismatch);
    }
  }
  // A torn entry does not wait for a group; end_broken_groups() ends the others of both groups.
  if (entry.torn || entry.first.group.empty()) {
    set.ready.push_back(key);
    return;
  }
  const std::string group_key = entry.first.group;
  Group& group = set.groups[group_key];
  group.expected = entry.first.group_size;
  group.ready.push_back(key);
  if (static_cast<int>(group.ready.size()) < group.expected) return;
  // All or none: one member's mismatch fails the whole group.
  std::string mismatch;
  for (const std::string& name : group.ready) {
    const Entry& member = set.entries.at(name);
    if (mismatch.empty()) mismatch = member.mismatch;
  }
  for (const std::string& name : group.ready) {
    set.entries.at(name).mismatch = mismatch;
    set.ready.push_back(name);
  }
  set.groups.erase(group_key);
}

// The members of a group on which the ranks disagree fail together, including those that some ranks
// will never ask for, because there they belong to no group.
void Coordinator::end_broken_groups(Set& set) {
  for (const auto& [group, text] : std::exchange(set.broken_groups, {})) {
    if (group.empty()) continue;
    std::vector<std::string> members;
    for (const auto& [key, entry] : set.entries) {
      if (entry.first.group == group || entry.other_group == group) members.push_back(key);
    }
    // The table is unordered, and errors should come in a stable order.
    std::sort(members.begin(), members.end());
    for (const std::string& key : members) end_waiting(set, key, text);
    set.groups.erase(group);
  }
}

// Where one rank has started a prepared set, another may have submitted its tensors one by one:
// those that wait fail with the set.
void Coordinator::end_broken_sets(Set& set) {
  for (const auto& [members, text] : std::exchange(set.broken_sets, {})) {
    const std::unordered_set<std::string> names(members->names.begin(), members->names.end());
    std::vector<std::uint64_t> counted;
    set.counts.each([&](const Count& count) {
      if (count.order == 0 && names.count(count.known->agreed.name) != 0) {
        counted.push_back(count.number);
      }
    });
    for (const std::uint64_t number : counted) {
      spell_out(set, set.counts.take(number, is_number(number)));
    }
    for (const std::string& name : members->names) {
      const auto found = set.entries.find(name);
      // Ready operations were requested by all, and run.
      if (found != set.entries.end() && found->second.order == 0) end_waiting(set, name, text);
    }
  }
}

void Coordinator::end_waiting(Set& set, const std::string& key, const std::string& mismatch) {
  Entry& entry = set.entries.at(key);
  const bool queued = std::count(set.ready.begin(), set.ready.end(), key) > 0;
  if (entry.order == 0) entry.order = ++next_order_;
  if (entry.mismatch.empty()) entry.mismatch = mismatch;
  if (!queued) set.ready.push_back(key);
}

void Coordinator::join(Set& set, std::int32_t id, int rank) {
  const auto index = static_cast<std::size_t>(set.index_of[static_cast<std::size_t>(rank)]);
  if (set.joined[index]) return;
  set.joined[index] = 1;
  set.last_joined = rank;
  ++set.joined_count;
  // The table's order is arbitrary; sorted names become ready in the same order every time.
  std::vector<std::pair<std::uint64_t, std::string>> complete;
  for (auto& [key, entry] : set.entries) {
    if (entry.has_arrived[index]) --entry.arrived;  // joined_count stands for it from now on
    complete.emplace_back(0, key);
  }
  std::sort(complete.begin(), complete.end());
  for (const auto& [unused, key] : complete) arrive(set, key);
  if (set.joined_count < static_cast<int>(set.ranks.size())) return;
  Response response;
  // All have joined: the join ends, and everyone takes part again.
  response.agreed.action = Action::kJoin;
  response.agreed.process_set = id;
  response.numbers = {rank};
  immediate_.push_back(std::move(response));
  std::fill(set.joined.begin(), set.joined.end(), 0);
  set.joined_count = 0;
}

namespace {

// True when scaling keeps the identity an identity: the runtime scales what a joined rank
// contributes like everything else.
bool scale_spares_identity(const Request& request) {
  switch (request.reduce_op) {
    case HORA_PRODUCT:
      return request.prescale == 1.0;
    case HORA_MIN:
    case HORA_MAX:
      return request.prescale > 0;
    default:
      return true;
  }
}

// Only operations for which a joined rank has a neutral contribution can run without it.
std::string unsupported_with_joined(const Request& request) {
  switch (request.action) {
    case Action::kAllreduce:
      if (scale_spares_identity(request)) return {};
      return title_of(request.action, request.name) + ": a " +
             std::string(reduce_op_name(request.reduce_op)) +
             " of tensors with this prescale factor cannot run while a rank has joined";
    case Action::kBarrier:
      return {};
    default:
      return title_of(request.action, request.name) + " cannot run while a rank has joined";
  }
}

}  // namespace

// Turns a ready entry into the response that all ranks of the set execute, or fail with.
Response Coordinator::conclude(std::int32_t id, Entry entry) {
  Response response;
  response.agreed = std::move(entry.first);
  response.agreed.process_set = id;
  response.joined = std::move(entry.joined);
  if (entry.mismatch.empty() && !response.joined.empty()) {
    entry.mismatch = unsupported_with_joined(response.agreed);
  }
  // All ranks get the error, also those that agree with the first one.
  if (!entry.mismatch.empty()) {
    response.status = HORA_MISMATCH;
    response.error = std::move(entry.mismatch);
    return response;
  }
  response.numbers = std::move(entry.rows);
  for (const auto& splits : entry.splits) {
    response.all_splits.insert(response.all_splits.end(), splits.begin(), splits.end());
  }
  // The first rank's splits would be wrong for others; all_splits has everyone's.
  response.agreed.splits.clear();
  if (response.agreed.action == Action::kAddProcessSet ||
      response.agreed.action == Action::kRemoveProcessSet) {
    conclude_world_action(response);
  }
  return response;
}

// The set of the same ranks in the same order; nothing where there is none.
std::optional<std::int32_t> Coordinator::find_set(const std::vector<std::int32_t>& ranks) const {
  const auto found = std::find_if(sets_.begin(), sets_.end(),
                                  [&](const auto& each) { return each.second.ranks == ranks; });
  return found == sets_.end() ? std::nullopt : std::optional(found->first);
}

// Changes the table at the moment when the response gets its place in the order.
void Coordinator::conclude_world_action(Response& response) {
  if (response.agreed.action == Action::kRemoveProcessSet) {
    sets_.erase(static_cast<std::int32_t>(response.agreed.shape.at(0)));
    return;
  }
  std::vector<std::int32_t> ranks(response.agreed.shape.begin(), response.agreed.shape.end());
  const std::optional<std::int32_t> found = find_set(ranks);
  if (response.agreed.action == Action::kProcessSetOf) {
    response.numbers = {found ? *found : add_set(std::move(ranks))};
    return;
  }
  if (found) {
    response.status = HORA_INVALID_ARGUMENT;
    response.error =
        "a process set of the ranks " + format_shape(response.agreed.shape) + " already exists";
    return;
  }
  response.numbers = {add_set(std::move(ranks))};
}

std::optional<Coordinator::TimePoint> Coordinator::wait_for_more(TimePoint now,
                                                                 std::chrono::microseconds at_most,
                                                                 std::int64_t enough_bytes) {
  bool on_their_way = false;
  std::int64_t bytes = 0;
  std::size_t ready = 0;
  for (const auto& [id, set] : sets_) {
    // More requests than ready ones: some ranks have asked for something that others have not.
    on_their_way = on_their_way || set.entries.size() > set.ready.size() ||
                   set.counts.size() > set.ready_counts.size();
    ready += set.ready.size() + set.ready_counts.size();
    if (set.together.count.order != 0) {
      if (set.together.sequence->reduced_bytes < 0) return std::nullopt;
      bytes += set.together.sequence->reduced_bytes;
      ++ready;
    }
    on_their_way =
        on_their_way || (set.together.sequence != nullptr && set.together.count.order == 0);
    // An error gains nothing by waiting, nor does anything but a reduction.
    if (!set.broken_groups.empty() || !set.broken_sets.empty()) return std::nullopt;
    for (const std::string& key : set.ready) {
      const Entry& entry = set.entries.at(key);
      if (entry.first.action != Action::kAllreduce || !entry.mismatch.empty()) return std::nullopt;
      bytes += tensor_bytes(entry.first);
    }
    for (const std::uint64_t number : set.ready_counts) {
      const Response& known = *find_count(set.counts, number)->known;
      if (known.agreed.action != Action::kAllreduce) return std::nullopt;
      bytes += tensor_bytes(known.agreed);
    }
  }
  if (ready == 0 || !on_their_way || !immediate_.empty() || bytes >= enough_bytes) {
    return std::nullopt;
  }
  // The wait counts from the first response that could have run, not from the last.
  if (!waiting_since_) waiting_since_ = now;
  const TimePoint end = *waiting_since_ + at_most;
  return now < end ? std::optional(end) : std::nullopt;
}

// Empties the lists of what is ready, set by set; the order among sets follows from `order`.
std::vector<Coordinator::Ready> Coordinator::take_ready() {
  waiting_since_.reset();
  std::vector<Ready> ready;
  std::vector<std::int32_t> ids;
  // A copy of the ids: concluding may add or remove sets.
  for (const auto& [id, set] : sets_) ids.push_back(id);
  for (std::int32_t id : ids) {
    const auto found = sets_.find(id);
    if (found == sets_.end()) continue;  // one of the world's responses removed it
    Set& set = found->second;
    if (set.together.count.order != 0) take_apart(set);
    end_broken_groups(set);
    end_broken_sets(set);
    for (const std::uint64_t number : set.ready_counts) {
      const Count count = set.counts.take(number, is_number(number));
      ready.push_back({number, count.known, nullptr, count.order});
    }
    set.ready_counts.clear();
    for (const std::string& key : std::exchange(set.ready, {})) {
      auto node = set.entries.extract(key);
      const std::uint64_t order = node.mapped().order;
      auto response = std::make_unique<Response>(conclude(id, std::move(node.mapped())));
      ready.push_back({0, nullptr, std::move(response), order});
    }
  }
  const auto before = [](const Ready& a, const Ready& b) {
    const int left = a.response().agreed.priority;
    const int right = b.response().agreed.priority;
    return left != right ? left > right : a.order < b.order;
  };
  // Usually they are in order, and the check is cheaper than a sort.
  if (!std::is_sorted(ready.begin(), ready.end(), before)) {
    std::stable_sort(ready.begin(), ready.end(), before);
  }
  // Last: a join or a shutdown follows whatever was ready before it.
  for (Response& response : std::exchange(immediate_, {})) {
    if (response.agreed.action == Action::kProcessSetOf) conclude_world_action(response);
    ready.push_back({0, nullptr, std::make_unique<Response>(std::move(response)), 0});
  }
  return ready;
}

const Coordinator::LastRequest* Coordinator::last_asked(int rank) const {
  const LastRequest& own = last_asked_[static_cast<std::size_t>(rank)];
  // What all ranks ran by the fast path counts as this rank's request, if it is more recent.
  const LastRequest& last = own.name.empty() || own.when < last_of_all_.when ? last_of_all_ : own;
  return last.name.empty() ? nullptr : &last;
}

void Coordinator::asked_by_all(const Request& request, TimePoint when) {
  last_of_all_.note(request, when);
}

bool Coordinator::anything_waiting() const {
  return std::any_of(sets_.begin(), sets_.end(), [](const auto& each) {
    const Set& set = each.second;
    return !set.entries.empty() || !set.counts.empty() || set.together.sequence != nullptr;
  });
}

// For the stall inspector: every unfinished entry and count, with the ranks that are missing.
std::vector<Coordinator::Waiting> Coordinator::waiting() const {
  std::vector<Waiting> result;
  for (const auto& [id, set] : sets_) {
    for (const auto& [key, entry] : set.entries) {
      Waiting waiting{entry.first.action, id, key, entry.since, {}};
      for (std::size_t i = 0; i < set.ranks.size(); ++i) {
        if (!entry.has_arrived[i] && !set.joined[i]) waiting.missing.push_back(set.ranks[i]);
      }
      result.push_back(std::move(waiting));
    }
    const auto add = [&, id = id, &set = set](const Request& known, const Count& count) {
      Waiting waiting{known.action, id, known.name, count.since, {}};
      for (std::size_t i = 0; i < set.ranks.size(); ++i) {
        if (!count.has(i)) waiting.missing.push_back(set.ranks[i]);
      }
      result.push_back(std::move(waiting));
    };
    set.counts.each([&](const Count& count) { add(count.known->agreed, count); });
    if (set.together.sequence == nullptr) continue;
    for (const Response* each : set.together.sequence->responses) {
      add(each->agreed, set.together.count);
    }
  }
  std::sort(result.begin(), result.end(),
            [](const Waiting& a, const Waiting& b) { return a.since < b.since; });
  return result;
}

}  // namespace hora::collectives
