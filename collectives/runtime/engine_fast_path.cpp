// Small operations that all ranks have agreed on before, through the fast path.
#include <algorithm>
#include <numeric>

#include "collectives/control/messages.h"
#include "collectives/negotiation/wire.h"
#include "collectives/runtime/engine.h"
#include "collectives/runtime/executor.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// After so long the others are called upon to post, so that rank 0 learns who is missing.
constexpr std::chrono::milliseconds kFastPathPatience{100};
// All that is waited for has been sent already.
constexpr std::chrono::seconds kComingPatience{5};
// How many operations go by rank 0, at most, after one that went to the fast path in vain. It
// doubles with each such, and begins anew when one comes through.
constexpr int kLongestPause = 64;
// Who is stopped is named by the watchdog, unless the network lets no signs of life pass.
constexpr std::chrono::seconds kGuardFirst{3};
// Barriers are known by their count, everything else by its number in the response cache.
constexpr std::uint64_t kBarriers = std::uint64_t{1} << 63;

// For the result of an allgather.
bool make_room(Operation& operation, const std::vector<std::int64_t>& rows) {
  const Request& request = operation.request;
  operation.result_shape = request.shape;
  operation.result_shape[0] = std::accumulate(rows.begin(), rows.end(), INT64_C(0));
  return operation.result.allocate(element_count(operation.result_shape) *
                                   static_cast<std::int64_t>(dtype_bytes(request.dtype)));
}

}  // namespace

// Whether the operation, the only one that was submitted, is in the fast path now.
bool Engine::try_fast_path(ProcessSet& world, OperationPtr& operation) {
  FastPath* const fast_path = channel_->fast_path();
  // Tuning goes by what rank 0 is asked for, and is told along with its answers.
  if (fast_path == nullptr || tuning_ || operation->request.process_set != 0 ||
      fast_path->posted() || !world.pending.empty() || world.joining) {
    return false;
  }
  const bool barrier = operation->request.action == Action::kBarrier;
  const std::uint64_t number =
      barrier ? kBarriers | operation->barrier
              : world.cache.find(operation->request, operation->record->number);
  if (!barrier) operation->record->number = number;
  if (number == 0) return false;
  const bool gathers = operation->request.action == Action::kAllgather;
  const std::vector<std::int64_t> none;
  const std::vector<std::int64_t>& rows = gathers ? world.cache.response_of(number)->numbers : none;
  if (!fast_path_.rows.fits(*operation, rows)) return false;
  if (fast_path_.pause > 0) {
    --fast_path_.pause;
    return false;
  }
  if (gathers && !make_room(*operation, rows)) return false;
  fast_path_.gathered = rows;
  operation->asked_as = barrier ? 0 : number;
  observer_.taken(operation->request, operation->submitted);
  if (coordinator_) observer_.arrived(0, operation->request);
  pack_fast_path(*fast_path, *operation, world_.settings.rank);
  fast_path->post(number);
  fast_path_.call_at = operation->submitted + kFastPathPatience;
  fast_path_.operation = std::move(operation);
  fast_path_.warned = false;
  return true;
}

Deadline Engine::fast_path_due() const {
  return fast_path_.operation ? fast_path_.call_at : Deadline::max();
}

void Engine::progress_inline(const Operation& operation) {
  const auto on_fast_path = [&] { return fast_path_.operation.get() == &operation; };
  if (ended() || !take_submissions() || !on_fast_path()) return;
  poll_fast_path();
  if (!on_fast_path()) return;
  if (channel_->waiters()->watch()) poll_fast_path();
}

// Does what the fast path asks for. Answers whether there was something.
bool Engine::poll_fast_path() {
  FastPath* const fast_path = channel_->fast_path();
  if (fast_path == nullptr || state_ != State::kRunning) return false;
  if (!fast_path_.open) fast_path->set_attentive(fast_path_.open = true);
  LeaderFastPath* const leaders = fast_path->between_hosts();
  ProcessSet& world = *sets_.at(0);
  for (bool worked = false;; worked = true) {
    fast_path->listen(!world.pending.empty() || world.joining);
    if (!fast_path->posted()) {
      if (!fast_path->called_upon()) return worked;
      fast_path->post(FastPath::kNothing);
    }
    if (leaders != nullptr && !go_on_between_hosts(*leaders)) return true;
    if (!fast_path->decided()) return worked;
    OperationPtr operation = std::exchange(fast_path_.operation, nullptr);
    fast_path_.load.reset();
    if (fast_path->common() != FastPath::kNothing) {
      run_on_fast_path(*fast_path, world, *operation);
      fast_path->next();
      fast_path_.next_pause = 1;
      fast_path_runs_.fetch_add(1, std::memory_order_relaxed);
      finish(operation, HORA_OK, {});
      continue;
    }
    fast_path->next();
    fast_path_.pause = fast_path_.next_pause;
    fast_path_.next_pause = std::min(2 * fast_path_.next_pause, kLongestPause);
    if (operation != nullptr) ask_rank_0({&operation, 1}, true);
  }
}

// False: the world has ended.
bool Engine::go_on_between_hosts(LeaderFastPath& fast_path) {
  if (fast_path.failure().empty() && fast_path.can_go_on()) {
    if (fast_path.posted_here() != FastPath::kNothing && !fast_path_.load) {
      fast_path_.load.emplace(fast_path, *fast_path_.operation, fast_path_.gathered);
    }
    if (!fast_path.go_on(fast_path_.load ? &*fast_path_.load : nullptr)) {
      fast_path.fail("the leader of another host sent a malformed message");
    }
  }
  // Rank 0 knows that others wait, and is to know who does not keep them.
  if (fast_path.called() && fast_path_.told < fast_path.turn()) tell_posted(fast_path);
  if (fast_path.failure().empty()) return true;
  data_plane_failed(fast_path.failure());
  return false;
}

// So that rank 0 learns who is missing.
void Engine::call_if_late() {
  if (!fast_path_.operation || ended()) return;
  const auto now = Clock::now();
  if (now < fast_path_.call_at) return;
  FastPath& fast_path = *channel_->fast_path();
  fast_path_.call_at = now + kFastPathPatience;
  if (LeaderFastPath* leaders = fast_path.between_hosts()) {
    if (fast_path_.told < leaders->turn()) tell_posted(*leaders);
  } else {
    static_cast<ShmFastPath&>(fast_path).call_upon_others();
  }
  if (coordinator_) look_for_stopped_ranks(fast_path, now);
}

// On several hosts rank 0 does the calling. This rank has posted.
void Engine::tell_posted(const LeaderFastPath& fast_path) {
  fast_path_.told = fast_path.turn();
  WireWriter out;
  out.varint(fast_path.turn());
  const std::string bytes = out.take();
  if (coordinator_) return handle_posted(0, bytes);
  channel_->send(0, control_message(ControlMessage::kPosted, bytes));
}

void Engine::handle_posted(int rank, std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  FastPath* const fast_path = channel_->fast_path();
  LeaderFastPath* const leaders = fast_path == nullptr ? nullptr : fast_path->between_hosts();
  if (!in.ok() || !coordinator_ || leaders == nullptr) {
    return give_up(name_rank(rank) + " sent a malformed control message");
  }
  leaders->note_posted(rank, turn);
  if (turn <= fast_path_.called) return;
  fast_path_.called = turn;
  leaders->call(turn);
  for (int other = 1; other < world_.settings.size; ++other) {
    if (other != rank) channel_->send(other, control_message(ControlMessage::kCall, bytes));
  }
}

void Engine::handle_call(std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  FastPath* const fast_path = channel_->fast_path();
  LeaderFastPath* const leaders = fast_path == nullptr ? nullptr : fast_path->between_hosts();
  if (!in.ok() || leaders == nullptr) return give_up("rank 0 sent a malformed control message");
  leaders->call(turn);
}

// What the fast path of several hosts decides comes by other connections than rank 0's word. A rank
// that ends the job says how far it has seen turns decided; so far all others come before they
// leave.
void Engine::note_turn(Request& shutdown) const {
  FastPath* const fast_path = channel_->fast_path();
  if (fast_path == nullptr || fast_path->between_hosts() == nullptr) return;
  shutdown.shape = {static_cast<std::int64_t>(fast_path->between_hosts()->turn()) - 1};
}

void Engine::catch_up(const Request& shutdown) {
  FastPath* const fast_path = channel_->fast_path();
  if (shutdown.shape.empty() || fast_path == nullptr || fast_path->between_hosts() == nullptr)
    return;
  LeaderFastPath& leaders = *fast_path->between_hosts();
  const auto last = static_cast<std::uint64_t>(shutdown.shape.front());
  const Deadline deadline = Clock::now() + kComingPatience;
  const auto bad_news = [](const Incoming& each) {
    return each.gone || ends_the_world(kind_of(each.bytes));
  };
  while (poll_fast_path(), call_if_late(),
         leaders.turn() <= last && !ended() && Clock::now() < deadline) {
    if (std::any_of(inbox_.begin(), inbox_.end(), bad_news) || stop_reason()) return;
    wait_for_messages(deadline);
  }
}

// Rank 0: a rank that can do anything answers when it is called upon, and then what is missing
// shows in the coordinator's table. One that cannot, since it was stopped, shows here only.
void Engine::look_for_stopped_ranks(const FastPath& fast_path, Clock::time_point now) {
  const Settings& settings = world_.settings;
  const Operation& operation = *fast_path_.operation;
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - operation.submitted);
  const bool fatal = stall_limit().count() > 0 && waited >= stall_limit() + kGuardFirst;
  const bool due = !fast_path_.warned && waited >= settings.stall_warning;
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
  fast_path_.warned = true;
  if (!fatal) {
    os::log_warn("stall",
                 "some ranks have waited for " + seconds + " for one that is stopped:" + text);
    return;
  }
  text = "stalled for " + seconds + ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
         std::to_string(stall_limit().count()) + ":" + text;
  os::log_error("stall", text);
  end_world(text);
}

void Engine::run_on_fast_path(FastPath& fast_path, const ProcessSet& world, Operation& operation) {
  const Request& request = operation.request;
  if (coordinator_) {
    for (int rank = 1; rank < fast_path.size(); ++rank) observer_.arrived(rank, request);
    coordinator_->asked_by_all(request, operation.submitted);
  }
  const Response* response = world.cache.response_of(operation.asked_as);
  std::optional<Response> made;  // it may have been forgotten in the meantime
  if (response == nullptr) {
    made.emplace().agreed = request;
    response = &*made;
  }
  const Response* const step[] = {response};
  const auto now = Clock::now();
  observer_.agreed(step, now);
  const int place = free_place();
  observer_.step_begins(place, step, now);
  Activities* const activities = observer_.activities(place);
  if (activities != nullptr) {
    activities->begin(
        activity_name(fast_path_.rows.backend(request), static_cast<hora_operation>(request.action))
            .c_str());
  }
  unpack_fast_path(fast_path, operation, fast_path_.gathered, world_.settings.rank);
  if (activities != nullptr) activities->end();
  observer_.step_ends(place, true, now);
  watchdog_->goes_on();
}

}  // namespace hora::collectives
