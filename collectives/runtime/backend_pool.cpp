// SPDX-License-Identifier: Apache-2.0
// Creates backends so that all ranks end with the same set of them. Creation is collective and may
// fail on any rank at any point; after each attempt all ranks of the world exchange what became of
// it, and a backend that failed anywhere is dropped everywhere. Whatever cannot be created is
// replaced by the next best, so a job runs as long as any backend works.
#include "collectives/runtime/backend_pool.h"

#include <algorithm>
#include <map>
#include <new>
#include <span>

#include "collectives/algorithms/allreduce.h"
#include "collectives/backends/hierarchical_backend.h"
#include "collectives/backends/peer_links_backend.h"
#include "collectives/backends/registry.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// The contribution of a rank to one round of the creation of a backend. kOwnObjection: the failure
// is known to have begun on that rank.
enum class Brings : char { kData = 'd', kSuccess = 's', kObjection = 'o', kOwnObjection = 'O' };

// Other ranks may wait inside a library for a rank that has failed; they give up after the same
// time as the ranks that wait here. This is added to it.
constexpr std::chrono::seconds kLibraryTimeout{5};

// exchange() for a backend that is being created for one set.
//
// A rank may fail before it comes to a round in which the others wait for its data, and none of
// them knows how many rounds the others have to come. So it brings its objection to the round that
// is next, and with that the creation has ended, for all and at the same round; if all goes well it
// ends when all bring their success.
class SetServices final : public Services {
 public:
  SetServices(OobAllgather* oob, const ProcessSet& set, std::chrono::milliseconds timeout)
      : oob_(oob), set_(set), timeout_(timeout) {}

  const std::vector<std::string>& notes() const { return notes_; }

  // The last round; `mine` says why this rank failed, or is empty. Returns one objection, the same
  // on all ranks of the set; empty on success. An error if the ranks cannot exchange anything.
  // A success may carry a remark for the others.
  Result<std::string> conclude(const std::string& mine, bool own, const std::string& remark) {
    if (objection_.empty() && !broken_) {
      // The others may still be inside a library call that waits for this rank.
      const Brings what = mine.empty() ? Brings::kSuccess
                          : own        ? Brings::kOwnObjection
                                       : Brings::kObjection;
      timeout_ += kLibraryTimeout;
      const std::string& text = mine.empty() ? remark : mine;
      static_cast<void>(allgather(what, {std::string(1, static_cast<char>(what)) + text}));
    }
    // Not an objection: the ranks cannot exchange anything, so the world has to end.
    if (broken_) return *broken_;
    return objection_;
  }
  // By set index, after a success of all.
  std::vector<std::string> remarks() const {
    std::vector<std::string> texts;
    for (const std::string& part : parts_) texts.push_back(part.substr(1));
    return texts;
  }

  bool exchange(const void* data, std::size_t bytes, bool bytes_to_each,
                const void* const** received, const std::size_t** lengths,
                ErrorText& error) noexcept override {
    try {
      return run(data, bytes, bytes_to_each, received, lengths, error);
    } catch (const std::exception& failure) {
      return error.set("%s", failure.what());
    }
  }

  const char* setting(const char* name) noexcept override { return std::getenv(name); }

  bool is_ending() noexcept override {
    try {
      return oob_ != nullptr && oob_->is_ending();
    } catch (const std::bad_alloc&) {
      return true;
    }
  }

  void note(const char* text) noexcept override {
    try {
      notes_.emplace_back(text);
    } catch (const std::bad_alloc&) {  // it is for people, and they have other worries now
    }
  }

 private:
  bool run(const void* data, std::size_t bytes, bool bytes_to_each, const void* const** received,
           const std::size_t** lengths, ErrorText& error) {
    const auto* start = static_cast<const char*>(data);
    std::vector<std::string> parts;
    // The first byte of each part says what it is (Brings); the rest is the backend's.
    for (std::size_t i = 0; i < (bytes_to_each ? set_.ranks.size() : 1); ++i) {
      parts.emplace_back(1, static_cast<char>(Brings::kData)).append(start + i * bytes, bytes);
    }
    if (!allgather(Brings::kData, std::move(parts))) {
      return error.set("%s", broken_ ? broken_->message.c_str() : objection_.c_str());
    }
    pointers_.clear();
    lengths_.clear();
    for (const std::string& part : parts_) {
      pointers_.push_back(part.data() + 1);
      lengths_.push_back(part.size() - 1);
    }
    *received = pointers_.data();
    *lengths = lengths_.data();
    return true;
  }

  // One round, to which this rank contributes `what`. False: the creation has ended.
  bool allgather(Brings what, std::vector<std::string> parts) {
    // A world of one exchanges with itself.
    if (oob_ == nullptr) {
      parts_ = std::move(parts);
    } else {
      auto result = oob_->exchange(set_.id, set_.ranks, parts, Clock::now() + timeout_);
      if (!result) {
        broken_ = std::move(result).error();
      } else if (!broken_) {
        parts_ = std::move(*result);
      }
      if (broken_) return false;
    }
    objection_ = find_objection(what);
    return objection_.empty();
  }

  // One rank's own failure explains why others have waited for it.
  std::string find_objection(Brings expected) const {
    std::string first;
    std::string out_of_step;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto brought = parts_[i].empty() ? Brings{} : static_cast<Brings>(parts_[i].front());
      const std::string rank = "rank " + std::to_string(set_.ranks[i]) + ": ";
      if (brought == Brings::kOwnObjection) return rank + parts_[i].substr(1);
      if (brought == Brings::kObjection) {
        if (first.empty()) first = rank + parts_[i].substr(1);
      } else if (brought != expected) {
        out_of_step = rank + "it is out of step with the other ranks";
      }
    }
    return first.empty() ? out_of_step : first;
  }

  OobAllgather* oob_;
  const ProcessSet& set_;
  std::chrono::milliseconds timeout_;
  std::vector<std::string> notes_;
  std::string objection_;
  std::optional<Error> broken_;
  std::vector<std::string> parts_;
  std::vector<const void*> pointers_;
  std::vector<std::size_t> lengths_;
};

// Higher than links alone, lower than a library that knows the hosts itself.
constexpr std::int32_t kHierarchicalScore = 120;

Scope scope_of(const BackendDescriptor& descriptor) {
  const std::span<const Capability> rows(descriptor.rows,
                                         static_cast<std::size_t>(descriptor.row_count));
  const auto all = [&](auto what) { return std::all_of(rows.begin(), rows.end(), what); };
  // Derived from the rows, so that a descriptor cannot contradict itself.
  if (all([](const Capability& row) { return row.alone != 0; })) return Scope::kRank;
  if (all([](const Capability& row) { return row.across_hosts == 0; })) return Scope::kHost;
  return Scope::kHosts;
}

// A set of one rank needs them, whatever backends the user chooses.
std::vector<std::string> indispensable_backends() {
  std::vector<std::string> ids;
  for (const BackendRow& row : backend_rows()) {
    if (row.linked != nullptr && scope_of(*row.linked()) == Scope::kRank) ids.emplace_back(row.id);
  }
  return ids;
}

std::string first_of(const std::vector<std::string>& votes) {
  const auto objects = [](const std::string& vote) { return !vote.empty(); };
  const auto first = std::find_if(votes.begin(), votes.end(), objects);
  return first == votes.end() ? std::string() : *first;
}

// Of this process. The strings belong to the caller.
GroupContext context_of(const Settings& settings, const std::string& address) {
  GroupContext context;
  context.rank = settings.rank;
  context.world_size = settings.size;
  context.local_rank = settings.local_rank;
  context.local_size = settings.local_size;
  context.timeout_ms = settings.start_timeout.count();
  context.address = address.c_str();
  context.job = settings.job_id.c_str();
  return context;
}

std::string reason_of(const ErrorText& error) {
  return *error.text == '\0' ? "failed" : error.text;
}

// This rank's report about an attempt: why it failed, or nothing, and then `backend` is set. An
// error if the ranks cannot exchange anything.
Result<std::string> objection_to(Result<BackendPtr> created, BackendPtr& backend) {
  if (created) backend = std::move(*created);
  if (created) return std::string();
  // Only a failed attempt is put to the vote. Everything else means that the vote itself cannot
  // take place.
  if (created.error().code == ErrorCode::kUnavailable) return created.error().message;
  return std::move(created).error();
}

}  // namespace

Status check_backend_names(const Settings& settings) {
  std::vector<std::string> known;
  for (const BackendRow& row : backend_rows()) known.emplace_back(row.id);
  known.emplace_back(kHierarchical);
  const std::string unknown = unknown_backend(settings.backends, known);
  if (unknown.empty()) return Ok{};
  return make_error(ErrorCode::kUsage, "HORA_BACKENDS=" + settings.backends +
                                           ": no backend is called " + quote(unknown) +
                                           "; there are " + join(known, ", "));
}

std::vector<std::string> usable_backends(const Settings& settings) {
  std::vector<std::string> usable;
  ProbeContext context;
  context.world_size = settings.size;
  context.local_size = settings.local_size;
  for (const BackendRow& row : backend_rows()) {
    ErrorText why_not;
    // Before the module is loaded: MPI libraries change the process when they are loaded.
    if (!is_called_for(row, why_not)) continue;
    const auto descriptor = load_backend(row);
    if (!descriptor) continue;
    if ((*descriptor)->probe(context, why_not)) usable.emplace_back(row.id);
  }
  return usable;
}

ListeningLinks ListeningLinks::open(const Settings& settings, const std::string& address,
                                    const std::vector<std::string>& backends) {
  ListeningLinks opened;
  for (const std::string& id : backends) {
    const auto descriptor = load_backend(*find_backend_row(id));
    if (!descriptor || (*descriptor)->listen == nullptr) continue;
    char card[kLinksCardBytes] = {};
    ErrorText error;
    opened.backend = *descriptor;
    opened.links.reset(opened.backend->listen(context_of(settings, address), card, error));
    if (opened.links == nullptr) continue;
    opened.card.assign(card, sizeof card);
    break;
  }
  return opened;
}

BackendPool::BackendPool(const World& world, OobAllgather* oob) : world_(world), oob_(oob) {
  std::vector<std::vector<std::string>> usable;
  for (const RankInfo& each : world.rank_infos) usable.push_back(each.backends);
  for (const std::string& id :
       // Computed by every rank from the same rank infos: no exchange.
       agree_on_backends(usable, world.settings.backends, indispensable_backends())) {
    const BackendRow* row = find_backend_row(id);
    if (row == nullptr) continue;
    auto descriptor = load_backend(*row);
    if (!descriptor) continue;
    entries_.push_back({id, *descriptor, scope_of(**descriptor), nullptr, false,
                        std::make_unique<EntryNotices>(*this, id)});
  }
  rebuild_table();
}

void BackendPool::EntryNotices::warn(const char* sentence) noexcept {
  try {
    pool_.note_once(id_, sentence, true);
  } catch (const std::bad_alloc&) {  // it is for people, and they have other worries now
  }
}

void BackendPool::note_once(const std::string& id, const std::string& sentence, bool logs) {
  const std::pair<std::string, std::string> note(id, sentence);
  {
    // The backend of each process set may find out the same.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(notes_.begin(), notes_.end(), note) != notes_.end()) return;
    notes_.push_back(note);
  }
  if (logs) os::log_warn("backends", note.first + ": " + note.second);
}

BackendPool::~BackendPool() {
  for (Entry& entry : entries_) {
    if (entry.links != nullptr) entry.links->destroy();
  }
}

void BackendPool::rebuild_table() {
  table_.clear();
  for (const Entry& entry : entries_) {
    if (entry.dropped) continue;
    for (int i = 0; i < entry.descriptor->row_count; ++i) {
      table_.push_back({entry.id, entry.descriptor->rows[i]});
    }
  }
}

// All ranks see the same cards, so either all go by them or none does.
void BackendPool::begin(ListeningLinks listening) {
  std::vector<const void*> cards;
  for (const RankInfo& each : world_.rank_infos) {
    if (each.links_card.size() == kLinksCardBytes) cards.push_back(each.links_card.data());
  }
  const auto listens = [&](const Entry& entry) { return entry.descriptor == listening.backend; };
  if (cards.size() < world_.rank_infos.size() || std::ranges::none_of(entries_, listens)) return;
  listening.backend->begin(*listening.links, context_of(world_.settings, world_.address),
                           cards.data());
  listening_ = std::move(listening);
}

// Creates only what the set can use: no mesh of connections for a set of one rank, or of one host
// that has something better.
bool BackendPool::wanted_for(const Entry& entry, const ProcessSet& set) const {
  for (int i = 0; i < entry.descriptor->row_count; ++i) {
    const Capability& row = entry.descriptor->rows[i];
    SelectionQuery query;
    query.operation = static_cast<hora_operation>(row.operation);
    query.gpu = row.gpu != 0;
    query.one_host = set.one_host;
    query.set_size = set.size();
    for (std::int64_t bytes : {row.least_bytes, row.most_bytes}) {
      query.bytes = bytes;
      for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
        query.dtype = static_cast<hora_dtype>(dtype);
        if (select_backend(table_, query) == entry.id) return true;
      }
    }
  }
  return false;
}

// All ranks of the world exchange what they know about an attempt of some of them. Returns the
// first objection, which names its rank; empty on success.
Result<std::string> BackendPool::first_objection(const std::string& mine) {
  if (oob_ == nullptr) return mine;
  std::vector<std::int32_t> all;
  for (int rank = 0; rank < world_.settings.size; ++rank) all.push_back(rank);
  const Deadline deadline = Clock::now() + world_.settings.start_timeout;
  auto votes = oob_->exchange(0, all, {mine}, deadline);
  if (!votes) return std::move(votes).error();
  return first_of(*votes);
}

Status BackendPool::create_backends(ProcessSet& set) {
  Status created = make_backends(set);
  listening_ = {};
  // The set is discarded with the error, and abort_all() must not reach what it had.
  if (!created) destroy_backends(set);
  return created;
}

Status BackendPool::make_backends(ProcessSet& set) {
  // Repeats until nothing new fails: a dropped backend can make another one the best for some size.
  bool changed = true;
  const bool was_connected = connected() != nullptr;
  set.table.clear();
  std::vector<const Entry*> made;  // for this set; ranks that are not in it count, too
  while (changed) {                // dropping one may make another one useful
    changed = false;
    for (Entry& entry : entries_) {
      if (entry.dropped || std::count(made.begin(), made.end(), &entry) > 0 ||
          !wanted_for(entry, set)) {
        continue;
      }
      Result<std::string> mine{std::string()};
      BackendPtr backend;
      // Links connect the whole world, so ranks outside of the set take part, too; otherwise they
      // only vote.
      if (set.index >= 0 || entry.descriptor->connect != nullptr) {
        mine = objection_to(create(entry, set), backend);
        if (!mine) return std::move(mine).error();
      }
      // Where all ranks have created it together, they know already.
      const bool is_known = set.size() == world_.settings.size;
      auto objection = is_known ? std::move(mine) : first_objection(*mine);
      if (!objection) return std::move(objection).error();
      if (!objection->empty()) {
        drop(entry, *objection);
        changed = true;
        break;
      }
      made.push_back(&entry);
      if (backend == nullptr) continue;
      const Algorithm algorithm =
          entry.descriptor->connect != nullptr ? Algorithm::kPeerLinks : Algorithm::kBackend;
      keep(set, {entry.id, entry.scope, algorithm, entry.descriptor->traits, std::move(backend)});
    }
  }
  for (const SelectionRow& row : table_) {
    if (set.find_backend(row.backend) != nullptr) set.table.push_back(row);
  }
  Entry* const between = connected();
  // Where links have been connected for a set of all ranks, create() has composed them.
  const bool is_composed = !was_connected && set.size() == world_.settings.size;
  if (between == nullptr || is_composed) return Ok{};
  return compose(set, *between, [this](const std::string& mine) { return first_objection(mine); });
}

BackendPool::Entry* BackendPool::connected() {
  Entry* found = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.dropped && entry.links != nullptr) found = &entry;
  }
  return found;
}

void BackendPool::keep(ProcessSet& set, SetBackend backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_.push_back(backend.instance.get());
  if (std::find(enabled_.begin(), enabled_.end(), backend.id) == enabled_.end()) {
    enabled_.push_back(backend.id);
  }
  // Never becomes true again: callers may already know that they must not drive.
  any_thread_ = any_thread_ && backend.has(kAnyThread);
  // The world may have ended on the watchdog's thread while this backend was being created.
  if (aborted_) backend.instance->abort();
  set.backends.push_back(std::move(backend));
}

// All ranks make their part before they vote, and before they connect what is not connected: a rank
// that fails to connect goes on to the vote, and would keep others of its host waiting here.
Status BackendPool::compose(ProcessSet& set, Entry& between, const Vote& vote) {
  const RankInfo& agreed = world_.rank_infos.front();
  std::vector<std::int32_t> hosts;
  for (std::int32_t rank : set.ranks) hosts.push_back(world_.hosts[static_cast<std::size_t>(rank)]);
  Entry* within = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.dropped && entry.scope == Scope::kHost) within = &entry;
  }
  // A rank outside of the set computes a plan as a member would, to know whether there is anything
  // to create; it then only votes.
  const Hierarchy plan = plan_hierarchy(set.ranks, hosts, std::max(set.index, 0));
  const bool allreduce = agreed.hierarchical_allreduce != Choice::kOff;
  const bool allgather = agreed.hierarchical_allgather != Choice::kOff && plan.in_blocks;
  // All ranks come to the same answer: the plan follows from hosts and settings that all of them
  // have.
  if (within == nullptr || !is_worth_hierarchy(hosts) || !(allreduce || allgather)) return Ok{};
  std::map<std::int32_t, std::vector<std::int32_t>> members;
  for (std::size_t i = 0; i < hosts.size(); ++i) members[hosts[i]].push_back(set.ranks[i]);
  // The ranks of each host exchange what shared memory needs, all hosts at the same time.
  for (const auto& [host, ranks] : members) {
    oob_->define_scope(scope_within(set.id, host), ranks);
  }
  Result<std::string> mine{std::string()};
  BackendPtr local;
  // A host with one rank of the set needs nothing within the host.
  if (set.index >= 0 && plan.local.size() > 1) {
    ProcessSet on_host;
    on_host.id = scope_within(set.id, world_.hosts[static_cast<std::size_t>(plan.local.front())]);
    on_host.ranks = plan.local;
    on_host.index = plan.local_index;
    mine = objection_to(create(*within, on_host), local);
    if (!mine) return std::move(mine).error();
  }
  auto objection = vote(*mine);
  for (const auto& [host, ranks] : members) oob_->forget_scope(scope_within(set.id, host));
  if (!objection) return std::move(objection).error();
  if (!objection->empty()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_out_.emplace_back(kHierarchical, *objection);
    return Ok{};
  }
  if (set.index < 0) return Ok{};
  // The composed backend may do only what both of its parts may.
  const std::uint32_t of_both = within->descriptor->traits & between.descriptor->traits;
  const std::uint32_t traits =
      (of_both & kAnyThread) | (within->descriptor->traits & kUsesSizeHints);
  BackendPtr backend(make_hierarchical_backend(plan, local.release(), *between.links, set.id,
                                               options_for(plan.hosts())));
  keep(set, {kHierarchical, Scope::kHosts, Algorithm::kComposed, traits, std::move(backend)});
  for (const hora_operation operation : {HORA_ALLREDUCE, HORA_ALLGATHER}) {
    if (!(operation == HORA_ALLREDUCE ? allreduce : allgather)) continue;
    Capability row;
    row.operation = operation;
    row.score = kHierarchicalScore;
    set.table.push_back({kHierarchical, row, true});
  }
  return Ok{};
}

PointToPoint::Options BackendPool::options_for(int ranks) const {
  PointToPoint::Options options;
  options.allreduce = allreduce_borders(ranks, round_trip_);
  return options;
}

Result<BackendPtr> BackendPool::create(Entry& entry, ProcessSet& set) {
  const bool links_peers = entry.descriptor->connect != nullptr;
  ProcessSet all;  // peer links connect the whole world, once
  for (int rank = 0; rank < world_.settings.size; ++rank) all.ranks.push_back(rank);
  all.index = world_.settings.rank;
  const ProcessSet& members = links_peers ? all : set;
  SetServices services(oob_, members, world_.settings.start_timeout);
  std::vector<std::int32_t> hosts;
  for (std::int32_t rank : members.ranks) {
    hosts.push_back(world_.hosts[static_cast<std::size_t>(rank)]);
  }
  GroupContext context = context_of(world_.settings, world_.address);
  context.set = members.id;
  context.index = members.index;
  context.size = members.size();
  context.ranks = members.ranks.data();
  context.hosts = hosts.data();
  context.services = &services;
  context.notices = entry.notices.get();
  ErrorText error;
  const auto conclude = [&](bool good, const std::string& remark) -> Status {
    auto objection = services.conclude(good ? std::string() : reason_of(error), error.own, remark);
    if (!objection) return std::move(objection).error();
    if (objection->empty()) return Ok{};
    return make_error(ErrorCode::kUnavailable, std::move(*objection));
  };
  if (!links_peers) {
    BackendPtr backend(entry.descriptor->create(context, error));
    HORA_TRY(conclude(backend != nullptr, {}));
    // hora_describe() shows the notes of the world; those of later sets would repeat them.
    if (is_of_world(set.id)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const std::string& note : services.notes()) notes_.emplace_back(entry.id, note);
    }
    return backend;
  }
  // Connected once, for the first set that wants it, and shared by all later ones.
  if (entry.links == nullptr) {
    const Vote connect = [&](const std::string& part) -> Result<std::string> {
      if (entry.descriptor == listening_.backend) context.listening = listening_.links.release();
      std::unique_ptr<PeerLinks, DestroyLinks> links(entry.descriptor->connect(context, error));
      // If another rank has failed, what was created here has no peers.
      HORA_TRY(conclude(links != nullptr, part));
      const std::lock_guard<std::mutex> lock(mutex_);
      links_.push_back(entry.links = links.release());
      if (aborted_) entry.links->abort();
      return first_of(services.remarks());
    };
    if (connected() == nullptr && set.size() == world_.settings.size) {
      HORA_TRY(compose(set, entry, connect));
    }
    if (entry.links == nullptr) HORA_TRY(connect({}));
  }
  if (set.index < 0) return BackendPtr();
  return BackendPtr(
      make_peer_links_backend(*entry.links, set.ranks, set.index, set.id, options_for(set.size())));
}

void BackendPool::drop(Entry& entry, std::string why) {
  entry.dropped = true;
  rebuild_table();
  // The objection names the rank that makes it.
  const std::string own = "rank " + std::to_string(world_.settings.rank) + ": ";
  const bool in_elastic_job = !world_.settings.round.empty();
  if (in_elastic_job && entry.descriptor->connect != nullptr && !why.starts_with(own)) {
    goes_on_without_ = true;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  left_out_.emplace_back(entry.id, std::move(why));
}

void BackendPool::destroy_backends(ProcessSet& set) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const SetBackend& each : set.backends) std::erase(live_, each.instance.get());
  }
  set.backends.clear();
}

std::vector<std::string> BackendPool::enabled() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return enabled_;
}

std::vector<std::pair<std::string, std::string>> BackendPool::left_out() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return left_out_;
}

std::vector<std::pair<std::string, std::string>> BackendPool::notes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return notes_;
}

bool BackendPool::aborted() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return aborted_;
}

bool BackendPool::any_thread() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return any_thread_;
}

void BackendPool::abort_all() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  // Under the mutex, so that no backend is destroyed meanwhile.
  for (Backend* backend : live_) backend->abort();
  for (PeerLinks* links : links_) links->abort();
}

}  // namespace hora::collectives
