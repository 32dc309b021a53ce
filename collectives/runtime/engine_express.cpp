// Small operations that all ranks have agreed on before, through the express lane.
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
constexpr std::chrono::milliseconds kExpressPatience{100};
// All that is waited for has been sent already.
constexpr std::chrono::seconds kComingPatience{5};
// How many operations go by rank 0, at most, after one that went to the lane in vain. It doubles
// with each such, and begins anew when one comes through.
constexpr int kLongestPause = 64;
// Who is stopped is named by the guard, unless the network lets no signs of life pass.
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

// Whether the operation, the only one that was submitted, is in the lane now.
bool Engine::go_express(ProcessSet& world, OperationPtr& operation) {
  Lane* const lane = channel_->lane();
  // Tuning goes by what rank 0 is asked for, and is told along with its answers.
  if (lane == nullptr || tuning_ || operation->request.process_set != 0 || lane->posted() ||
      !world.pending.empty() || world.joining) {
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
  const std::vector<std::int64_t>& rows = gathers ? world.cache.verdict_of(number)->numbers : none;
  if (!express_.rows.fits(*operation, rows)) return false;
  if (express_.pause > 0) {
    --express_.pause;
    return false;
  }
  if (gathers && !make_room(*operation, rows)) return false;
  express_.gathered = rows;
  operation->asked_as = barrier ? 0 : number;
  observer_.taken(operation->request, operation->submitted);
  if (coordinator_) observer_.arrived(0, operation->request);
  give_express(*lane, *operation, world_.settings.rank);
  lane->post(number);
  express_.call_at = operation->submitted + kExpressPatience;
  express_.operation = std::move(operation);
  express_.warned = false;
  return true;
}

Deadline Engine::express_due() const {
  return express_.operation ? express_.call_at : Deadline::max();
}

void Engine::hasten(const Operation& operation) {
  const auto in_lane = [&] { return express_.operation.get() == &operation; };
  if (ended() || !take_submissions() || !in_lane()) return;
  look_at_lane();
  if (!in_lane()) return;
  if (channel_->seats()->watch()) look_at_lane();
}

// Does what the lane asks for. Answers whether there was something.
bool Engine::look_at_lane() {
  Lane* const lane = channel_->lane();
  if (lane == nullptr || state_ != State::kRunning) return false;
  if (!express_.open) lane->set_attentive(express_.open = true);
  LeaderLane* const leaders = lane->between_hosts();
  ProcessSet& world = *sets_.at(0);
  for (bool worked = false;; worked = true) {
    lane->listen(!world.pending.empty() || world.joining);
    if (!lane->posted()) {
      if (!lane->called_upon()) return worked;
      lane->post(Lane::kNothing);
    }
    if (leaders != nullptr && !go_on_between_hosts(*leaders)) return true;
    if (!lane->decided()) return worked;
    OperationPtr operation = std::exchange(express_.operation, nullptr);
    express_.load.reset();
    if (lane->common() != Lane::kNothing) {
      run_express(*lane, world, *operation);
      lane->next();
      express_.next_pause = 1;
      express_runs_.fetch_add(1, std::memory_order_relaxed);
      finish(operation, HORA_OK, {});
      continue;
    }
    lane->next();
    express_.pause = express_.next_pause;
    express_.next_pause = std::min(2 * express_.next_pause, kLongestPause);
    if (operation != nullptr) ask_rank_0({&operation, 1}, true);
  }
}

// False: the world has ended.
bool Engine::go_on_between_hosts(LeaderLane& lane) {
  if (lane.failure().empty() && lane.can_go_on()) {
    if (lane.posted_here() != Lane::kNothing && !express_.load) {
      express_.load.emplace(lane, *express_.operation, express_.gathered);
    }
    if (!lane.go_on(express_.load ? &*express_.load : nullptr)) {
      lane.fail("the leader of another host sent a malformed message");
    }
  }
  // Rank 0 knows that others wait, and is to know who does not keep them.
  if (lane.called() && express_.told < lane.turn()) tell_posted(lane);
  if (lane.failure().empty()) return true;
  data_plane_failed(lane.failure());
  return false;
}

// So that rank 0 learns who is missing.
void Engine::call_if_late() {
  if (!express_.operation || ended()) return;
  const auto now = Clock::now();
  if (now < express_.call_at) return;
  Lane& lane = *channel_->lane();
  express_.call_at = now + kExpressPatience;
  if (LeaderLane* leaders = lane.between_hosts()) {
    if (express_.told < leaders->turn()) tell_posted(*leaders);
  } else {
    static_cast<ExpressLane&>(lane).call_upon_others();
  }
  if (coordinator_) look_for_stopped_ranks(lane, now);
}

// On several hosts rank 0 does the calling. This rank has posted.
void Engine::tell_posted(const LeaderLane& lane) {
  express_.told = lane.turn();
  WireWriter out;
  out.varint(lane.turn());
  const std::string bytes = out.take();
  if (coordinator_) return handle_posted(0, bytes);
  channel_->send(0, control_message(ControlMessage::kPosted, bytes));
}

void Engine::handle_posted(int rank, std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  Lane* const lane = channel_->lane();
  LeaderLane* const leaders = lane == nullptr ? nullptr : lane->between_hosts();
  if (!in.ok() || !coordinator_ || leaders == nullptr) {
    return give_up(name_rank(rank) + " sent a malformed control message");
  }
  leaders->note_posted(rank, turn);
  if (turn <= express_.called) return;
  express_.called = turn;
  leaders->call(turn);
  for (int other = 1; other < world_.settings.size; ++other) {
    if (other != rank) channel_->send(other, control_message(ControlMessage::kCall, bytes));
  }
}

void Engine::handle_call(std::string_view bytes) {
  WireReader in(bytes);
  const std::uint64_t turn = in.varint();
  Lane* const lane = channel_->lane();
  LeaderLane* const leaders = lane == nullptr ? nullptr : lane->between_hosts();
  if (!in.ok() || leaders == nullptr) return give_up("rank 0 sent a malformed control message");
  leaders->call(turn);
}

// What the lane of several hosts decides comes by other connections than rank 0's word. A rank that
// ends the job says how far it has seen turns decided; so far all others come before they leave.
void Engine::note_turn(Request& shutdown) const {
  Lane* const lane = channel_->lane();
  if (lane == nullptr || lane->between_hosts() == nullptr) return;
  shutdown.shape = {static_cast<std::int64_t>(lane->between_hosts()->turn()) - 1};
}

void Engine::come_to_turn(const Request& shutdown) {
  Lane* const lane = channel_->lane();
  if (shutdown.shape.empty() || lane == nullptr || lane->between_hosts() == nullptr) return;
  LeaderLane& leaders = *lane->between_hosts();
  const auto last = static_cast<std::uint64_t>(shutdown.shape.front());
  const Deadline deadline = Clock::now() + kComingPatience;
  const auto bad_news = [](const Incoming& each) {
    return each.gone || ends_the_world(kind_of(each.bytes));
  };
  while (look_at_lane(), call_if_late(),
         leaders.turn() <= last && !ended() && Clock::now() < deadline) {
    if (std::any_of(inbox_.begin(), inbox_.end(), bad_news) || stop_reason()) return;
    wait_for_messages(deadline);
  }
}

// Rank 0: a rank that can do anything answers when it is called upon, and then what is missing
// shows in the coordinator's table. One that cannot, since it was stopped, shows here only.
void Engine::look_for_stopped_ranks(const Lane& lane, Clock::time_point now) {
  const Settings& settings = world_.settings;
  const Operation& operation = *express_.operation;
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - operation.submitted);
  const bool fatal = stall_limit().count() > 0 && waited >= stall_limit() + kGuardFirst;
  const bool due = !express_.warned && waited >= settings.stall_warning;
  if (!settings.stall_check || (!fatal && !due)) return;
  const std::string seconds = std::to_string(waited.count()) + " s";
  std::string text;
  for (int rank = 0; rank < lane.size(); ++rank) {
    if (lane.has_posted(rank)) continue;
    text += "\n  rank " + std::to_string(rank) + " is missing in " +
            title_of(operation.request.action, operation.request.name) + " for " + seconds +
            "; it does not answer";
  }
  if (text.empty()) return;  // it has just come
  express_.warned = true;
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

void Engine::run_express(Lane& lane, const ProcessSet& world, Operation& operation) {
  const Request& request = operation.request;
  if (coordinator_) {
    for (int rank = 1; rank < lane.size(); ++rank) observer_.arrived(rank, request);
    coordinator_->asked_by_all(request, operation.submitted);
  }
  const Verdict* verdict = world.cache.verdict_of(operation.asked_as);
  std::optional<Verdict> made;  // it may have been forgotten in the meantime
  if (verdict == nullptr) {
    made.emplace().agreed = request;
    verdict = &*made;
  }
  const Verdict* const step[] = {verdict};
  const auto now = Clock::now();
  observer_.agreed(step, now);
  const int place = free_place();
  observer_.step_begins(place, step, now);
  Activities* const activities = observer_.activities(place);
  if (activities != nullptr) {
    activities->begin(
        activity_name(express_.rows.backend(request), static_cast<hora_operation>(request.action))
            .c_str());
  }
  take_express(lane, operation, express_.gathered, world_.settings.rank);
  if (activities != nullptr) activities->end();
  observer_.step_ends(place, true, now);
}

}  // namespace hora::collectives
