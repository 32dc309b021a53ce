#include "collectives/runtime/shutdown.h"

#include <algorithm>
#include <utility>

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

}  // namespace

Shutdown::Shutdown(const World& world, Mailbox& mailbox, BackendPool& pool, Observer& observer,
                   FailOperations fail_operations)
    : world_(world),
      mailbox_(mailbox),
      pool_(pool),
      observer_(observer),
      fail_operations_(std::move(fail_operations)) {
  mailbox_.oob().break_off_when([this] { return !silent_ranks().empty(); });
  look_for_late_ranks();
  if (!coordinates()) return;
  finished_.assign(static_cast<std::size_t>(world_.settings.size), 0);
  finished_[0] = 1;
}

// Connections stay open until everything agreed before has been run everywhere.
void Shutdown::leave(int who) {
  state_ = State::kLeaving;
  leave_fast_path();
  fail_everything(world_.name_rank(who) + " has shut down");
  const Deadline deadline = Clock::now() + kLeavingPatience;
  if (!coordinates()) {
    mailbox_.channel().send(0, control_message(ControlMessage::kFinished));
    static_cast<void>(mailbox_.channel().flush(0, deadline));
  }
  bool closed = false;
  const auto all_finished = [&] {
    return coordinates() ? std::count(finished_.begin(), finished_.end(), 0) == 0 : closed;
  };
  while (!all_finished() && Clock::now() < deadline && !stop_asked()) {
    if (mailbox_.empty()) mailbox_.wait(deadline);
    while (!mailbox_.empty() && state_ == State::kLeaving) {
      const Incoming each = mailbox_.take();
      if (coordinates()) {
        leave_without(each);
      } else if (each.gone || kind_of(each.bytes) == ControlMessage::kClose) {
        closed = true;
      }
    }
    if (state_ == State::kEnded) return;
  }
  if (coordinates()) {
    for (int rank = 1; rank < world_.settings.size; ++rank) {
      mailbox_.channel().send(rank, control_message(ControlMessage::kClose));
    }
    static_cast<void>(mailbox_.channel().flush(-1, Clock::now() + seconds(1)));
  }
  mailbox_.channel().hang_up();
}

void Shutdown::note_finished(int rank) {
  if (coordinates()) finished_[static_cast<std::size_t>(rank)] = 1;
}

// Rank 0, leaving: a rank has finished. One that fails at what was agreed before, or is lost, holds
// up those that do it with it: they are to know.
void Shutdown::leave_without(const Incoming& incoming) {
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
void Shutdown::handle_failure_notice(const Incoming& incoming) {
  leave_fast_path();
  if (!coordinates()) {
    if (!incoming.gone) return end_world(incoming.bytes.substr(1));
    return end_world(world_.name_rank(incoming.rank) + " is gone: " + incoming.bytes);
  }
  note_evidence(incoming);
  look_for_evidence(Clock::now() + kEvidencePatience);
}

void Shutdown::note_evidence(const Incoming& incoming) {
  if (incoming.gone) return root_cause_.lost(incoming.rank, incoming.bytes);
  const bool own = kind_of(incoming.bytes) == ControlMessage::kFailed;
  root_cause_.complained(incoming.rank, incoming.bytes.substr(1),
                         own ? Origin::kHere : Origin::kUnknown);
}

// Rank 0: somebody cannot go on. Ends the world, when it is certain which rank was lost, or else at
// the deadline.
void Shutdown::look_for_evidence(Deadline deadline) {
  while (!root_cause_.certain() && Clock::now() < deadline && !stop_asked()) {
    if (mailbox_.empty()) mailbox_.wait(deadline);
    while (!mailbox_.empty()) {
      const Incoming each = mailbox_.take();
      if (is_failure_notice(each)) note_evidence(each);
    }
  }
  // A leader's second connection to this rank may have ended seconds before its first does.
  if (const LeaderFastPath* const leaders = mailbox_.leaders();
      !root_cause_.certain() && leaders != nullptr && leaders->lost()) {
    root_cause_.lost(leaders->lost()->rank, leaders->lost()->how);
  }
  const auto cause = root_cause_.cause();
  if (!cause) return;
  end_world(world_.name_rank(cause->rank) + (cause->lost ? " is gone: " : ": ") + cause->text);
}

void Shutdown::data_plane_failed(const std::string& text, Origin origin) {
  if (state_ != State::kRunning) return;
  leave_fast_path();
  if (coordinates()) {
    root_cause_.complained(0, text, origin);
    return look_for_evidence(Clock::now() + kHostUpdatePatience + kEvidencePatience);
  }
  const bool own = origin == Origin::kHere;
  if (!own) wait_for_failure_notice(Clock::now() + kHostUpdatePatience);
  if (state_ != State::kRunning) return;
  const ControlMessage kind = own ? ControlMessage::kFailed : ControlMessage::kBroken;
  tell_rank_0(kind, text);
  // Rank 0 may be blocked in the same operation: this interrupts it.
  mailbox_.channel().hang_up();
  wait_for_failure_notice(Clock::now() + kAnswerPatience);
  if (state_ == State::kRunning) end_world(world_.name_rank(world_.settings.rank) + ": " + text);
}

void Shutdown::data_plane_failed(const Error& error) {
  if (const auto who = silent_ranks(); !who.empty() && state_ == State::kRunning) {
    return end_for_silence("setting up", who);
  }
  if (error.code == ErrorCode::kTimedOut && state_ == State::kRunning) {
    // Who knows who is missing is rank 0. It gives up first, so another one misses rank 0 itself.
    leave_fast_path();
    if (!coordinates()) wait_for_failure_notice(Clock::now() + kHostUpdatePatience);
    if (state_ != State::kRunning) return;
    const auto limit = std::chrono::duration_cast<seconds>(world_.settings.start_timeout);
    const std::string text =
        error.message + " for " + std::to_string(limit.count()) +
        " s, the limit (HOROVOD_GLOO_TIMEOUT_SECONDS):" +
        list_missing(coordinates() ? mailbox_.oob().missing() : std::vector<int>{0});
    if (!coordinates()) tell_rank_0(ControlMessage::kBroken, text);
    return end_world(text);
  }
  const bool broken_off = error.code == ErrorCode::kInterrupted;
  data_plane_failed(error.message, broken_off ? Origin::kElsewhere : Origin::kUnknown);
}

std::string Shutdown::list_missing(const std::vector<int>& missing) const {
  std::string text;
  for (const int rank : missing) {
    text += "\n  " + world_.name_rank(rank) + " does not come; its process is stopped or hangs";
  }
  return text;
}

// While the ranks set something up together nobody looks for stalls but whoever waits.
void Shutdown::look_for_late_ranks() {
  const Settings& settings = world_.settings;
  if (!settings.stall_check) return;
  const auto half = std::chrono::duration_cast<Clock::duration>(settings.start_timeout) / 2;
  const auto after = std::min<Clock::duration>(settings.stall_warning, half);
  mailbox_.oob().tell_of_late(after, [this, after](const std::vector<int>& missing) {
    const auto waited = std::chrono::duration_cast<seconds>(after).count();
    os::log_warn("stall",
                 "some ranks have waited for " + std::to_string(waited) +
                     " s for others, to set up something together:" + list_missing(missing));
  });
}

// A worker: until rank 0 has told what is the matter, or is gone itself.
void Shutdown::wait_for_failure_notice(Deadline deadline) {
  while (state_ == State::kRunning && Clock::now() < deadline && !stop_asked()) {
    // Others may have given rank 0 up a little earlier, and this rank has lost them.
    if (const auto who = silent_ranks(); !who.empty()) return end_for_silence("waiting", who);
    if (mailbox_.empty()) mailbox_.wait(deadline);
    while (state_ == State::kRunning && !mailbox_.empty()) {
      const Incoming each = mailbox_.take();
      if (is_failure_notice(each)) handle_failure_notice(each);
    }
  }
}

void Shutdown::tell_rank_0(ControlMessage kind, const std::string& text) {
  mailbox_.channel().send(0, control_message(kind, text));
  static_cast<void>(mailbox_.channel().flush(0, Clock::now() + kHostUpdatePatience));
}

void Shutdown::give_up(const std::string& text) {
  if (!coordinates()) tell_rank_0(ControlMessage::kBroken, text);
  end_world(world_.name_rank(world_.settings.rank) + ": " + text);
}

void Shutdown::interrupt(const std::vector<int>& silent) {
  interruption_.miss(silent);
  pool_.abort_all();
  mailbox_.channel().wake();
}

void Shutdown::stop_now(std::string reason) {
  interruption_.stop(std::move(reason));
  pool_.abort_all();
  mailbox_.channel().wake();
}

// No need to ask anybody: the watchdog has.
void Shutdown::end_for_silence(const std::string& during, const std::vector<int>& silent) {
  std::string text = "stalled " + during + ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
                     std::to_string(world_.stall_limit().count()) + ":";
  for (const int rank : silent) {
    text += "\n  " + world_.name_rank(rank) +
            " does not answer; its process is stopped, or its host is";
  }
  os::log_error("stall", text);
  end_world(text);
}

void Shutdown::end_world(const std::string& text) {
  if (state_ == State::kEnded) return;
  for (int rank = 1; coordinates() && rank < world_.settings.size; ++rank) {
    mailbox_.channel().send(rank, control_message(ControlMessage::kAbort, text));
  }
  if (coordinates()) static_cast<void>(mailbox_.channel().flush(-1, Clock::now() + seconds(1)));
  fail_everything(text);
  // Whoever is blocked in a collective sees the end of the stream at once.
  mailbox_.channel().hang_up();
}

void Shutdown::fail_everything(const std::string& text) {
  if (text_.empty()) text_ = text;
  if (state_ == State::kRunning) {
    state_ = State::kEnded;
    observer_.world_ended(text);
    pool_.abort_all();
  }
  leave_fast_path();
  fail_operations_(text);
}

// The world ends one way or the other: what the fast path brings wakes nobody any more.
void Shutdown::leave_fast_path() {
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(false);
}

// After a world that broke, rank 0 reads until the others have hung up: a connection that is closed
// over unread messages takes back what it has sent, and the others would blame rank 0.
void Shutdown::linger() {
  if (state_ != State::kEnded || !coordinates()) return;
  const Deadline deadline = Clock::now() + kLingerPatience;
  while (mailbox_.gone_count() < world_.settings.size - 1 && Clock::now() < deadline) {
    mailbox_.wait(deadline);
    mailbox_.clear();
  }
}

}  // namespace hora::collectives
