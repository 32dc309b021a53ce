// How an engine's world ends: agreed by all, or because something broke.
#include <algorithm>

#include "collectives/control/messages.h"
#include "collectives/runtime/engine.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long the ranks wait for each other at the end.
constexpr seconds kLeavingPatience{10};
// How long a rank whose data plane failed waits to be told why before it complains, and then for
// the answer, which rank 0 gives as soon as it has waited kEvidencePatience itself.
constexpr milliseconds kHostUpdatePatience{1000};
constexpr seconds kAnswerPatience{10};
constexpr milliseconds kEvidencePatience{1000};
// How long connections are kept for what the kernel has not delivered yet.
constexpr seconds kLingerPatience{2};

bool is_failure_notice(const Incoming& incoming) {
  return incoming.gone || ends_the_world(kind_of(incoming.bytes));
}

}  // namespace

// A rank has asked for the end: all leave together. Everything agreed before has been run here;
// connections stay open until it has been run everywhere.
void Engine::leave(const Response& response) {
  const auto who = static_cast<int>(response.numbers.at(0));
  catch_up(response.agreed);
  if (ended()) return;
  state_ = State::kLeaving;
  watchdog_->stop();
  leave_fast_path();
  fail_everything(name_rank(who) + " has shut down");
  const Deadline deadline = Clock::now() + kLeavingPatience;
  if (!coordinator_) {
    channel_->send(0, control_message(ControlMessage::kFinished));
    static_cast<void>(channel_->flush(0, deadline));
  }
  bool closed = false;
  const auto all_finished = [&] {
    return coordinator_ ? std::count(finished_.begin(), finished_.end(), 0) == 0 : closed;
  };
  while (!all_finished() && Clock::now() < deadline && !stop_reason()) {
    if (inbox_.empty()) wait_for_messages(deadline);
    while (!inbox_.empty() && state_ == State::kLeaving) {
      const Incoming each = take_message();
      if (coordinator_) {
        leave_without(each);
      } else if (each.gone || kind_of(each.bytes) == ControlMessage::kClose) {
        closed = true;
      }
    }
    if (state_ == State::kEnded) return;
  }
  if (coordinator_) {
    for (int rank = 1; rank < world_.settings.size; ++rank) {
      channel_->send(rank, control_message(ControlMessage::kClose));
    }
    static_cast<void>(channel_->flush(-1, Clock::now() + seconds(1)));
  }
  channel_->hang_up();
}

// Rank 0, leaving: a rank has finished. One that fails at what was agreed before, or is lost, holds
// up those that do it with it: they are to know.
void Engine::leave_without(const Incoming& incoming) {
  char& finished = finished_[static_cast<std::size_t>(incoming.rank)];
  if (is_failure_notice(incoming) && !finished) {
    note_evidence(incoming);
    look_for_evidence(Clock::now() + kEvidencePatience);
    state_ = State::kEnded;
  } else if (kind_of(incoming.bytes) == ControlMessage::kFinished) {
    finished = 1;
  }
}

// What this rank learns about the end from others. Rank 0's word is final, and so is the end of its
// connection. Rank 0 itself weighs what it sees and hears.
void Engine::handle_failure_notice(const Incoming& incoming) {
  leave_fast_path();
  if (!coordinator_) {
    if (!incoming.gone) return end_world(incoming.bytes.substr(1));
    return end_world(name_rank(incoming.rank) + " is gone: " + incoming.bytes);
  }
  note_evidence(incoming);
  look_for_evidence(Clock::now() + kEvidencePatience);
}

void Engine::note_evidence(const Incoming& incoming) {
  if (incoming.gone) return root_cause_.lost(incoming.rank, incoming.bytes);
  const bool own = kind_of(incoming.bytes) == ControlMessage::kFailed;
  root_cause_.complained(incoming.rank, incoming.bytes.substr(1),
                         own ? Origin::kHere : Origin::kUnknown);
}

// Rank 0: somebody cannot go on. Ends the world, when it is certain which rank was lost, or else at
// the deadline.
void Engine::look_for_evidence(Deadline deadline) {
  while (!root_cause_.certain() && Clock::now() < deadline && !stop_reason()) {
    if (inbox_.empty()) wait_for_messages(deadline);
    while (!inbox_.empty()) {
      const Incoming each = take_message();
      if (is_failure_notice(each)) note_evidence(each);
    }
  }
  // A leader's second connection to this rank may have ended seconds before its first does.
  if (const LeaderFastPath* const leaders =
          channel_->fast_path() ? channel_->fast_path()->between_hosts() : nullptr;
      !root_cause_.certain() && leaders != nullptr && leaders->lost()) {
    root_cause_.lost(leaders->lost()->rank, leaders->lost()->how);
  }
  const auto cause = root_cause_.cause();
  if (!cause) return;
  end_world(name_rank(cause->rank) + (cause->lost ? " is gone: " : ": ") + cause->text);
}

// The data plane often notices first that a peer is gone, but cannot tell which one began. The
// control plane can. Where it began here there is no news to wait for.
void Engine::data_plane_failed(const std::string& text, Origin origin) {
  if (state_ != State::kRunning) return;
  leave_fast_path();
  if (coordinator_) {
    root_cause_.complained(0, text, origin);
    return look_for_evidence(Clock::now() + kHostUpdatePatience + kEvidencePatience);
  }
  const bool own = origin == Origin::kHere;
  if (!own) wait_for_failure_notice(Clock::now() + kHostUpdatePatience);
  if (state_ != State::kRunning) return;
  const ControlMessage kind = own ? ControlMessage::kFailed : ControlMessage::kBroken;
  channel_->send(0, control_message(kind, text));
  static_cast<void>(channel_->flush(0, Clock::now() + kHostUpdatePatience));
  // Rank 0 may be blocked in the same operation: this interrupts it.
  channel_->hang_up();
  wait_for_failure_notice(Clock::now() + kAnswerPatience);
  if (state_ == State::kRunning) end_world(name_rank(world_.settings.rank) + ": " + text);
}

// What the ranks set up together did not come about.
void Engine::data_plane_failed(const Error& error) {
  if (const auto who = silent_ranks(); !who.empty() && state_ == State::kRunning) {
    return end_for_silence("setting up", who);
  }
  if (error.code == ErrorCode::kTimedOut && state_ == State::kRunning) {
    // Who knows who is missing is rank 0. It gives up first, so another one misses rank 0 itself.
    leave_fast_path();
    if (!coordinator_) wait_for_failure_notice(Clock::now() + kHostUpdatePatience);
    if (state_ != State::kRunning) return;
    const auto limit = std::chrono::duration_cast<seconds>(world_.settings.start_timeout);
    const std::string text = error.message + " for " + std::to_string(limit.count()) +
                             " s, the limit (HOROVOD_GLOO_TIMEOUT_SECONDS):" +
                             list_missing(coordinator_ ? oob_->missing() : std::vector<int>{0});
    if (!coordinator_) {
      channel_->send(0, control_message(ControlMessage::kBroken, text));
      static_cast<void>(channel_->flush(0, Clock::now() + kHostUpdatePatience));
    }
    return end_world(text);
  }
  const bool broken_off = error.code == ErrorCode::kInterrupted;
  data_plane_failed(error.message, broken_off ? Origin::kElsewhere : Origin::kUnknown);
}

std::string Engine::list_missing(const std::vector<int>& missing) const {
  std::string text;
  for (const int rank : missing) {
    text += "\n  " + name_rank(rank) + " does not come; its process is stopped or hangs";
  }
  return text;
}

// While the ranks set something up together nobody looks for stalls but whoever waits.
void Engine::look_for_late_ranks() {
  const Settings& settings = world_.settings;
  if (!settings.stall_check) return;
  const auto half = std::chrono::duration_cast<Clock::duration>(settings.start_timeout) / 2;
  const auto after = std::min<Clock::duration>(settings.stall_warning, half);
  oob_->tell_of_late(after, [this, after](const std::vector<int>& missing) {
    const auto waited = std::chrono::duration_cast<seconds>(after).count();
    os::log_warn("stall",
                 "some ranks have waited for " + std::to_string(waited) +
                     " s for others, to set up something together:" + list_missing(missing));
  });
}

// A worker: until rank 0 has told what is the matter, or is gone itself.
void Engine::wait_for_failure_notice(Deadline deadline) {
  while (state_ == State::kRunning && Clock::now() < deadline && !stop_reason()) {
    // Others may have given rank 0 up a little earlier, and this rank has lost them.
    if (const auto who = silent_ranks(); !who.empty()) return end_for_silence("waiting", who);
    if (inbox_.empty()) wait_for_messages(deadline);
    while (state_ == State::kRunning && !inbox_.empty()) {
      const Incoming each = take_message();
      if (is_failure_notice(each)) handle_failure_notice(each);
    }
  }
}

// This rank cannot go on, for a reason of its own.
void Engine::give_up(const std::string& text) {
  if (!coordinator_) {
    channel_->send(0, control_message(ControlMessage::kBroken, text));
    static_cast<void>(channel_->flush(0, Clock::now() + kHostUpdatePatience));
  }
  end_world(name_rank(world_.settings.rank) + ": " + text);
}

// The watchdog's thread: this rank may be blocked in a collective, which will not end well.
void Engine::interrupt(const std::vector<int>& silent) {
  {
    const std::lock_guard<std::mutex> lock(stop_mutex_);
    silent_ = silent;
  }
  pool_.abort_all();
  wake();
}

// The watchdog's thread.
void Engine::tell_of_silence(const std::vector<Watchdog::Silence>& silent) const {
  const auto whole_seconds = [](const Wait& wait) {
    return std::to_string(std::chrono::floor<seconds>(wait.since).count()) + " s";
  };
  std::string text = "some ranks have waited for " + whole_seconds(silent.front().wait) +
                     " for others that do not answer:";
  for (const auto& [rank, wait] : silent) {
    text += "\n  " + name_rank(rank) + " is missing";
    if (wait.in_step) text += " in the middle of " + wait.what;
    if (wait.set != 0) text += " of process set " + std::to_string(wait.set);
    text += " for " + whole_seconds(wait) + "; its process is stopped, or its host is";
  }
  os::log_warn("stall", text);
}

std::vector<int> Engine::silent_ranks() {
  const std::lock_guard<std::mutex> lock(stop_mutex_);
  return silent_;
}

// No need to ask anybody: the watchdog has.
void Engine::end_for_silence(const std::string& during, const std::vector<int>& silent) {
  std::string text = "stalled " + during + ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
                     std::to_string(stall_limit().count()) + ":";
  for (const int rank : silent) {
    text += "\n  " + name_rank(rank) + " does not answer; its process is stopped, or its host is";
  }
  os::log_error("stall", text);
  end_world(text);
}

// The world is unusable, for this reason. Rank 0 tells everybody.
void Engine::end_world(const std::string& text) {
  if (state_ == State::kEnded) return;
  for (int rank = 1; coordinator_ && rank < world_.settings.size; ++rank) {
    channel_->send(rank, control_message(ControlMessage::kAbort, text));
  }
  if (coordinator_) static_cast<void>(channel_->flush(-1, Clock::now() + seconds(1)));
  fail_everything(text);
  // Whoever is blocked in a collective sees the end of the stream at once.
  channel_->hang_up();
}

void Engine::fail_everything(const std::string& text) {
  if (end_text_.empty()) end_text_ = text;
  if (state_ == State::kRunning) {
    state_ = State::kEnded;
    observer_.world_ended(text);
    pool_.abort_all();
  }
  leave_fast_path();
  abandon_steps();
  std::vector<OperationPtr> open = queue_.close(text);
  if (fast_path_.operation) open.push_back(std::exchange(fast_path_.operation, nullptr));
  for (auto& [id, set] : sets_) {
    for (OperationPtr& operation : set->pending.take_all()) open.push_back(std::move(operation));
    if (set->joining) open.push_back(std::exchange(set->joining, nullptr));
  }
  finish_all(open, HORA_ABORTED, text);
}

// The world ends one way or the other: what the fast path brings wakes nobody any more.
void Engine::leave_fast_path() {
  if (FastPath* fast_path = channel_->fast_path()) fast_path->set_attentive(false);
}

// After a world that broke, rank 0 reads until the others have hung up: a connection that is closed
// over unread messages takes back what it has sent, and the others would blame rank 0.
void Engine::linger() {
  if (state_ != State::kEnded || !coordinator_) return;
  const Deadline deadline = Clock::now() + kLingerPatience;
  while (gone_count_ < world_.settings.size - 1 && Clock::now() < deadline) {
    wait_for_messages(deadline);
    inbox_.clear();
  }
}

}  // namespace hora::collectives
