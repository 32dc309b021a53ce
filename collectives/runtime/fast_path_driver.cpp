// SPDX-License-Identifier: Apache-2.0
// When to use the fast path, and how to leave it. A turn of the fast path is decided only when
// every rank has posted, so no rank may wait for a post that does not come: a rank with work at
// rank 0 posts "nothing", and one that is idle is called upon after kFastPathTimeout. Operations
// that a turn does not complete go to rank 0 as if there were no fast path.
#include "collectives/runtime/fast_path_driver.h"

#include <time.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "collectives/algorithms/allreduce.h"
#include "collectives/control/messages.h"
#include "collectives/negotiation/wire.h"
#include "collectives/runtime/executor.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// Both ways come to the same bits.
static_assert(kPairwise >= static_cast<std::int64_t>(LeaderFastPath::kMostRoom));
static_assert(kPairwiseUneven >= static_cast<std::int64_t>(LeaderFastPath::kMostUneven));

// After this time the other ranks are called upon to post, so that rank 0 learns which are missing.
constexpr std::chrono::milliseconds kFastPathTimeout{100};
// For turns that the rank that ends the job has seen decided: their messages have been sent
// already.
constexpr std::chrono::seconds kComingTimeout{5};
// How many operations go through rank 0, at most, after one that failed in the fast path. The
// number doubles with each failure and starts again at 1 after a success: two programs that
// alternate between operations must not pay for a failed turn each time.
constexpr int kLongestPause = 64;
// The watchdog names a stopped rank earlier, unless the network blocks heartbeats. This much later
// the fast path ends the world by itself.
constexpr std::chrono::seconds kGuardFirst{3};
// For this long the first looks for the posts of the others have no pause between them, if each
// rank has a core.
constexpr int kQuickLooks = 50;
// A barrier is identified by its count, everything else by its number in the response cache; the
// top bit keeps the two apart.
constexpr std::uint64_t kBarriers = std::uint64_t{1} << 63;

// The time of the kernel's last tick, some milliseconds ago at most: a fifth of the cost of
// Clock::now(), and good enough for reports and timeouts.
Clock::time_point coarse_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) +
                           std::chrono::nanoseconds(now.tv_nsec));
}

// Allocates the result, where the library does: `rows` as by find_rows(). False without memory.
bool make_room(Operation& operation, const std::vector<std::int64_t>& rows, int rank) {
  const Request& request = operation.request;
  std::int64_t own = std::accumulate(rows.begin(), rows.end(), INT64_C(0));
  if (request.action == Action::kReducescatter) {
    own = rows[static_cast<std::size_t>(rank)];
  } else if (request.action == Action::kAlltoall) {
    operation.received_splits = rows;
  } else if (request.action != Action::kAllgather) {
    return true;
  }
  operation.result_shape = request.shape;
  operation.result_shape[0] = own;
  return operation.result.allocate(element_count(operation.result_shape) *
                                   static_cast<std::int64_t>(dtype_bytes(request.dtype)));
}

std::string turn_message(ControlMessage kind, std::uint64_t turn) {
  WireWriter out;
  out.varint(turn);
  return control_message(kind, out.take());
}

}  // namespace

void FastPathDriver::set_up(const ProcessSet& set) {
  if (const FastPath* const lane = fast_path()) {
    rows_ = FastPathTable(set, links_.world.hosts, lane->room());
    if (LeaderFastPath* const leaders = fast_path()->between_hosts()) {
      const AllreduceBorders borders = allreduce_borders(leaders->plan().hosts(), round_trip_);
      shares_from_ = static_cast<std::size_t>(borders.halving_from);
    }
  }
}

bool FastPathDriver::is_free() const {
  const FastPath* const fast_path = this->fast_path();
  const ProcessSet& world = links_.sets.world();
  // Not while rank 0 searches for parameters: it measures what goes through it, and announces
  // changes with its responses. Not together with other operations of this rank either: the order
  // between the two paths would differ between ranks.
  return fast_path != nullptr && !links_.tuner.searching() && !fast_path->posted() &&
         world.pending.empty() && !world.joining;
}

bool FastPathDriver::take(OperationPtr& operation) {
  if (!is_free() || operation->request.process_set != 0) return false;
  const ProcessSet& world = links_.sets.world();
  FastPath* const fast_path = this->fast_path();
  const bool barrier = operation->request.action == Action::kBarrier;
  const std::uint64_t number =
      barrier ? kBarriers | operation->known.number
              : world.cache.find(operation->request, operation->record->number);
  if (!barrier) operation->record->number = number;
  // Never agreed before, so the other ranks cannot know its shape.
  if (number == 0) return false;
  find_rows(*operation, number);
  if (!rows_.fits(*operation, rows_in_result_)) return false;
  if (pause_ > 0) {
    --pause_;
    return false;
  }
  // Before the post: after it the other ranks count on this one.
  if (!make_room(*operation, rows_in_result_, links_.world.settings.rank)) return false;
  operation->asked_as = barrier ? 0 : number;
  links_.observer.taken(operation->request, operation->submitted);
  if (coordinates()) links_.observer.arrived(0, operation->request);
  // The tensor first, then the number: post() publishes both.
  pack_fast_path(*fast_path, *operation, rows_in_result_, links_.world.settings.rank);
  fast_path->post(number);
  call_at_ = operation->submitted + kFastPathTimeout;
  operation_ = std::move(operation);
  warned_ = false;
  return true;
}

// Its number, if it may go this way; else 0.
std::uint64_t FastPathDriver::find_prepared(Operation& operation) {
  if (operation.request.action == Action::kBarrier) {
    return rows_.fits(operation, {}) ? kBarriers | operation.known.number : 0;
  }
  const ResponseCache& cache = links_.sets.world().cache;
  // Both the look-up and the rules depend on the request, which does not change, and on the cache.
  if (operation.known.at == cache.learned()) return operation.known.number;
  const std::uint64_t number = cache.find(operation.request, operation.record->number);
  operation.record->number = number;
  if (number != 0) find_rows(operation, number);
  const bool fits = number != 0 && rows_.fits(operation, rows_in_result_);
  operation.known = {fits ? number : 0, cache.learned()};
  return operation.known.number;
}

// The rows of each rank in the result of an allgather or alltoall, as they were agreed on, or that
// each rank gets of a reducescatter; else none.
void FastPathDriver::find_rows(const Operation& operation, std::uint64_t number) {
  rows_in_result_.clear();
  const Request& request = operation.request;
  if (request.action == Action::kReducescatter) {
    rows_in_result_ = even_rows(request.shape[0], links_.world.settings.size);
  }
  if (request.action != Action::kAllgather && request.action != Action::kAlltoall) return;
  const Response& response = *links_.sets.world().cache.response_of(number);
  rows_in_result_ = response.numbers;
  // Rank 0 has the splits of all for all.
  const auto size = static_cast<std::size_t>(links_.world.settings.size);
  for (std::size_t at = static_cast<std::size_t>(links_.world.settings.rank);
       at < response.all_splits.size(); at += size) {
    rows_in_result_.push_back(response.all_splits[at]);
  }
}

AtOnce FastPathDriver::run_at_once(const OperationPtr& prepared, Waiters& waiters) {
  Operation& operation = *prepared;
  if (!open_ || !is_free() || pause_ > 0 || links_.observer.wants_all() ||
      !links_.shutdown.running() || operation.request.process_set != 0 ||
      fast_path()->between_hosts() != nullptr) {
    return AtOnce::kNotBegun;
  }
  const std::uint64_t number = find_prepared(operation);
  if (number == 0) return AtOnce::kNotBegun;
  find_rows(operation, number);
  if (!make_room(operation, rows_in_result_, links_.world.settings.rank)) return AtOnce::kNotBegun;
  FastPath& fast_path = *this->fast_path();
  // It may not have said so since its last operation with rank 0 ended, and others would ring it.
  fast_path.listen(false);
  // The tensor first, then the number, as in take().
  pack_fast_path(fast_path, operation, rows_in_result_, links_.world.settings.rank);
  fast_path.post(number);
  // The other ranks post meanwhile.
  const auto now = coarse_now();
  operation.start_again(now);
  operation.asked_as = operation.request.action == Action::kBarrier ? 0 : number;
  bool came = came_at_once(waiters, number);
  if (came && takes_two_turns(fast_path, operation)) {
    go_to_second_turn(fast_path, operation);
    came = came_at_once(waiters, number);
  }
  if (came) {
    unpack(fast_path, operation);
    fast_path.next();
    next_pause_ = 1;
    runs_.fetch_add(1, std::memory_order_relaxed);
    // What reports and the watchdog know of it is the same as after run(), but for the time.
    if (Coordinator* const coordinator = links_.negotiator.coordinator()) {
      coordinator->asked_by_all(operation.request, now);
    }
    links_.observer.ran_at_once(operation.request, now);
    links_.stalls.goes_on();
    operation.finish_at_once();
    return AtOnce::kDone;
  }
  // It takes longer: from here on it is as any other. What it waits for is measured from here: the
  // time of the last tick is too old.
  links_.observer.taken(operation.request, Clock::now());
  if (coordinates()) links_.observer.arrived(0, operation.request);
  call_at_ = now + kFastPathTimeout;
  warned_ = false;
  operation_ = prepared;
  return AtOnce::kUnderWay;
}

// Whether the turn in which this rank has posted that number is decided so within moments.
bool FastPathDriver::came_at_once(Waiters& waiters, std::uint64_t number) {
  FastPath& fast_path = *this->fast_path();
  const int quick_looks = waiters.gives_way() ? 0 : kQuickLooks;
  for (int looks = 0; looks < quick_looks && !fast_path.decided(); ++looks) {
  }
  return (fast_path.decided() || (waiters.watch() && fast_path.decided())) &&
         fast_path.common() == number;
}

// All have posted the operation, so every rank does this now, whatever else it is asked for: no
// rank can leave the others alone with their shares, unless the world ends.
void FastPathDriver::go_to_second_turn(FastPath& fast_path, const Operation& operation) {
  const std::uint64_t number = fast_path.common();
  reduce_share(fast_path, operation, links_.world.settings.rank);
  fast_path.next();
  fast_path.post(number);
  second_turn_ = true;
}

// The result, in the last turn of the operation.
void FastPathDriver::unpack(FastPath& fast_path, Operation& operation) {
  const int rank = links_.world.settings.rank;
  if (std::exchange(second_turn_, false)) {
    unpack_shares(fast_path, operation, rank);
  } else {
    unpack_fast_path(fast_path, operation, rows_in_result_, rank);
  }
}

// A join says that all before it has been asked for, and what is on the fast path may have to be
// asked for yet. Otherwise the next operation of that name could be taken for it.
void FastPathDriver::hold_join_back(std::vector<OperationPtr>& submitted) {
  if (operation_ == nullptr) return;
  const auto join = std::find_if(submitted.begin(), submitted.end(), [](const OperationPtr& each) {
    return each->request.action == Action::kJoin && each->request.process_set == 0;
  });
  if (join == submitted.end()) return;
  links_.sets.world().joining = std::move(*join);
  submitted.erase(join);
  join_waits_ = true;
}

bool FastPathDriver::poll() {
  bool worked = poll_turns();
  if (join_waits_ && operation_ == nullptr) {
    join_waits_ = false;
    worked = true;
    // Null: the world has ended meanwhile.
    if (OperationPtr join = std::exchange(links_.sets.world().joining, nullptr)) {
      links_.negotiator.ask({&join, 1}, false);
    }
  }
  return worked;
}

bool FastPathDriver::poll_turns() {
  FastPath* const fast_path = this->fast_path();
  if (fast_path == nullptr || !links_.shutdown.running()) return false;
  // Only from the first step of the loop on: during setup no thread would answer a call.
  if (!open_) fast_path->set_attentive(open_ = true);
  LeaderFastPath* const leaders = fast_path->between_hosts();
  ProcessSet& world = links_.sets.world();
  for (bool worked = false;; worked = true) {
    // Repeated in each round, because each round may add pending operations or finish them.
    fast_path->listen(!world.pending.empty() || world.joining);
    if (!fast_path->posted()) {
      // No rank waits for this one. Posting "nothing" unasked would end turns that can still
      // succeed.
      if (!fast_path->called_upon()) return worked;
      fast_path->post(FastPath::kNothing);
    }
    if (leaders != nullptr && !go_on_between_hosts(*leaders)) return true;
    if (!fast_path->decided()) return worked;
    const bool common = fast_path->common() != FastPath::kNothing;
    if (common && !second_turn_ && takes_two_turns(*fast_path, *operation_)) {
      go_to_second_turn(*fast_path, *operation_);
      continue;
    }
    OperationPtr operation = std::exchange(operation_, nullptr);
    load_.reset();
    if (common) {
      run(*fast_path, world, *operation);
      fast_path->next();
      // A success: the program repeats its operations, so the path pays.
      next_pause_ = 1;
      runs_.fetch_add(1, std::memory_order_relaxed);
      links_.queue.finish(operation, HORA_OK, {});
      continue;
    }
    fast_path->next();
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
    // Failed: the operation is negotiated through rank 0 like any other.
    if (operation != nullptr) links_.negotiator.ask({&operation, 1}, true);
  }
}

// Returns false if the world has ended.
bool FastPathDriver::go_on_between_hosts(LeaderFastPath& fast_path) {
  if (fast_path.failure().empty() && fast_path.can_go_on()) {
    // All ranks of this host have posted the same number: from here on the leader exchanges data.
    // Otherwise it sends empty messages, which end the turn for all hosts.
    if (fast_path.posted_here() != FastPath::kNothing && !load_) {
      load_.emplace(fast_path, *operation_, rows_in_result_, shares_from_);
    }
    if (!fast_path.go_on(load_ ? &*load_ : nullptr)) {
      fast_path.fail("the leader of another host sent a malformed message");
    }
  }
  // Rank 0 knows that ranks wait, and has to know which ranks are not the cause.
  if (fast_path.called() && reported_ < fast_path.turn()) report_posted(fast_path);
  // A leader's connection is part of the data plane: rank 0 finds out which rank was lost.
  if (fast_path.failure().empty()) return true;
  links_.shutdown.data_plane_failed(fast_path.failure());
  return false;
}

void FastPathDriver::call_if_late() {
  if (!operation_ || links_.shutdown.ended()) return;
  const auto now = Clock::now();
  if (now < call_at_) return;
  FastPath& fast_path = *this->fast_path();
  // Again later: the answer may be lost with the rank that should have sent it.
  call_at_ = now + kFastPathTimeout;
  if (LeaderFastPath* leaders = fast_path.between_hosts()) {
    if (reported_ < leaders->turn()) report_posted(*leaders);
  } else {
    static_cast<ShmFastPath&>(fast_path).call_upon_others();
  }
  if (coordinates()) look_for_stopped_ranks(fast_path, now);
}

// This rank has posted. On several hosts, rank 0 calls upon the others.
void FastPathDriver::report_posted(LeaderFastPath& fast_path) {
  reported_ = fast_path.turn();
  if (coordinates()) return call_for(fast_path, 0, reported_);
  links_.mailbox.channel().send(0, turn_message(ControlMessage::kPosted, reported_));
}

bool FastPathDriver::handle_posted(int rank, std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  LeaderFastPath* const leaders = links_.mailbox.leaders();
  if (!in.ok() || !coordinates() || leaders == nullptr) return false;
  call_for(*leaders, rank, turn);
  return true;
}

// Rank 0: that rank has posted in that turn and waits for the others.
void FastPathDriver::call_for(LeaderFastPath& fast_path, int rank, std::uint64_t turn) {
  fast_path.note_posted(rank, turn);
  // Several ranks report the same turn; one call is enough.
  if (turn <= called_) return;
  called_ = turn;
  fast_path.call(turn);
  std::vector<std::int32_t> others = links_.world.other_ranks();
  std::erase(others, rank);
  // Over the control connections, which reach ranks of all hosts.
  links_.mailbox.channel().send_to_all(others, turn_message(ControlMessage::kCall, turn));
}

bool FastPathDriver::handle_call(std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  LeaderFastPath* const leaders = links_.mailbox.leaders();
  if (!in.ok() || leaders == nullptr) return false;
  leaders->call(turn);
  return true;
}

void FastPathDriver::note_turn(Request& shutdown) const {
  const LeaderFastPath* const leaders = links_.mailbox.leaders();
  if (leaders == nullptr) return;
  // The turns before the current one are decided. The shape of a shutdown request has no other use.
  shutdown.shape = {static_cast<std::int64_t>(leaders->turn()) - 1};
}

void FastPathDriver::catch_up(const Request& shutdown) {
  const LeaderFastPath* const leaders = links_.mailbox.leaders();
  if (shutdown.shape.empty() || leaders == nullptr) return;
  const auto last = static_cast<std::uint64_t>(shutdown.shape.front());
  const Deadline deadline = Clock::now() + kComingTimeout;
  while (poll(), call_if_late(),
         leaders->turn() <= last && !links_.shutdown.ended() && Clock::now() < deadline) {
    // A failure would keep the turn from ever being decided.
    const auto& waiting = links_.mailbox.waiting();
    if (std::any_of(waiting.begin(), waiting.end(), is_failure_notice) ||
        links_.shutdown.interruption().stop_reason()) {
      return;
    }
    links_.mailbox.wait(deadline);
  }
}

// Rank 0: a rank that runs answers the call, and then the coordinator's table shows what is
// missing. A rank that is stopped shows only here.
void FastPathDriver::look_for_stopped_ranks(const FastPath& fast_path, Clock::time_point now) {
  const Settings& settings = links_.world.settings;
  const Operation& operation = *operation_;
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - operation.submitted);
  const bool fatal =
      links_.world.stall_limit().count() > 0 && waited >= links_.world.stall_limit() + kGuardFirst;
  const bool due = !warned_ && waited >= settings.stall_warning;
  // The warning comes once per operation, at the time that the user has set for stalls.
  if (!settings.stall_check || (!fatal && !due)) return;
  const std::string seconds = std::to_string(waited.count()) + " s";
  std::string text;
  for (int rank = 0; rank < fast_path.size(); ++rank) {
    if (fast_path.has_posted(rank)) continue;
    text += "\n  rank " + std::to_string(rank) + " is missing in " +
            title_of(operation.request.action, operation.request.name) + " for " + seconds +
            "; it does not answer";
  }
  if (text.empty()) return;  // it has just come
  warned_ = true;
  if (!fatal) {
    os::log_warn("stall",
                 "some ranks have waited for " + seconds + " for one that is stopped:" + text);
    return;
  }
  text = "stalled for " + seconds + ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
         std::to_string(links_.world.stall_limit().count()) + ":" + text;
  os::log_error("stall", text);
  links_.shutdown.end_world(text);
}

void FastPathDriver::run(FastPath& fast_path, const ProcessSet& world, Operation& operation) {
  const Request& request = operation.request;
  // Rank 0 does not know this operation. Its table and the timeline are updated as if all ranks had
  // requested it, so that stall reports and traces do not depend on the path.
  if (Coordinator* const coordinator = links_.negotiator.coordinator()) {
    for (int rank = 1; rank < fast_path.size(); ++rank) links_.observer.arrived(rank, request);
    coordinator->asked_by_all(request, operation.submitted);
  }
  const Response* response = world.cache.response_of(operation.asked_as);
  std::optional<Response> made;  // it may have been forgotten in the meantime
  if (response == nullptr) {
    made.emplace().agreed = request;
    response = &*made;
  }
  // Observers see the same events as for a step of a backend.
  const Response* const step[] = {response};
  const auto now = Clock::now();
  links_.observer.agreed(step, now);
  const int place = links_.steps.free_place();
  links_.observer.step_begins(place, step, now);
  Activities* const activities = links_.observer.activities(place);
  if (activities != nullptr) {
    activities->begin(
        activity_name(rows_.backend(request), static_cast<hora_operation>(request.action)).c_str());
  }
  unpack(fast_path, operation);
  if (activities != nullptr) activities->end();
  links_.observer.step_ends(place, true, now);
  links_.stalls.goes_on();
}

}  // namespace hora::collectives
