// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/shutdown.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "collectives/control/tree_frames.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

std::vector<int> who_keeps_back(const std::vector<int>& stopped,
                                const std::vector<std::int32_t>& missing,
                                const std::vector<std::int32_t>& hosts) {
  if (stopped.empty()) return {};
  // Hosts have their numbers by their first ranks, which lead them.
  std::map<std::int32_t, int> leaders;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    leaders.emplace(hosts[rank], static_cast<int>(rank));
  }
  std::set<int> passed;
  for (const std::int32_t rank : missing) {
    std::int32_t host = hosts[static_cast<std::size_t>(rank)];
    if (leaders.at(host) != rank) passed.insert(leaders.at(host));
    while (host != 0) {
      host = host_above(host);
      passed.insert(leaders.at(host));
    }
  }
  std::vector<int> found;
  std::copy_if(stopped.begin(), stopped.end(), std::back_inserter(found),
               [&](int rank) { return passed.count(rank) > 0; });
  return found;
}

// kRunning -> kLeaving -> (gone) when a rank asks for the end and all agree; kRunning -> kEnded
// when something broke. Rank 0 decides the reason of a broken world. A worker that notices a
// failure first waits for rank 0's message, then complains and waits for the answer, and reports
// its own observation only if neither arrives. All waits are bounded, and a worker waits longer for
// the answer than rank 0 waits for evidence.

namespace {

using std::chrono::seconds;

// How long the ranks wait for each other at the end.
constexpr seconds kLeavingTimeout{10};
// How long a rank whose data plane failed waits for the reason before it complains, and then for
// the answer, which rank 0 gives after kEvidenceTimeout.
constexpr Milliseconds kHostUpdateTimeout{1000};
constexpr seconds kAnswerTimeout{10};
constexpr Milliseconds kEvidenceTimeout{1000};
// How long connections stay open for data that the kernel has not delivered yet.
constexpr seconds kLingerTimeout{2};

}  // namespace

Shutdown::Shutdown(const World& world, Mailbox& mailbox, BackendPool& pool, Observer& observer,
                   FailOperations fail_operations)
    : world_(world),
      mailbox_(mailbox),
      pool_(pool),
      observer_(observer),
      fail_operations_(std::move(fail_operations)) {
  // A setup exchange has no deadline short enough for a stopped rank; the watchdog's verdict ends
  // it.
  mailbox_.oob().break_off_when([this] { return !silent_ranks().empty(); });
  look_for_late_ranks();
  if (!coordinates()) return;
  finished_.assign(static_cast<std::size_t>(world_.settings.size), 0);
  // Rank 0 counts the others; it leaves only after its own operations have run.
  finished_[0] = 1;
}

// Connections stay open until every rank has executed everything that was agreed before.
void Shutdown::leave(int who) {
  // From here the end of a connection is expected and no longer a failure.
  state_ = State::kLeaving;
  leave_fast_path();
  if (who != world_.settings.rank) observer_.others_left();
  fail_everything(world_.name_rank(who) + " has shut down");
  const Deadline deadline = Clock::now() + kLeavingTimeout;
  if (!coordinates()) {
    mailbox_.channel().send(0, control_message(ControlMessage::kFinished));
    // If rank 0 is gone, the loop below sees the end of its connection.
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
        // Rank 0 has closed, so every rank has finished: no peer needs this one any more.
        closed = true;
      }
    }
    if (state_ == State::kEnded) return;
  }
  if (coordinates()) {
    // Rank 0 closes first, and only now: a worker that closed early would look lost to the others.
    mailbox_.channel().send_to_all(world_.other_ranks(), control_message(ControlMessage::kClose));
    static_cast<void>(mailbox_.channel().flush(-1, Clock::now() + seconds(1)));
  }
  mailbox_.channel().hang_up();
}

void Shutdown::note_finished(int rank) {
  if (coordinates()) finished_[static_cast<std::size_t>(rank)] = 1;
}

// Rank 0, leaving: handles a rank that has finished. If a rank fails in an agreed operation or is
// lost, the ranks that wait for it have to learn that.
void Shutdown::leave_without(const Incoming& incoming) {
  char& finished = finished_[static_cast<std::size_t>(incoming.rank)];
  // A connection that ends after its rank has finished is the normal end.
  if (is_failure_notice(incoming) && !finished) {
    note_evidence(incoming);
    look_for_evidence(Clock::now() + kEvidenceTimeout);
    state_ = State::kEnded;
  } else if (kind_of(incoming.bytes) == ControlMessage::kFinished) {
    finished = 1;
  }
}

// A notice from another rank. For a worker, the message of rank 0 is final, and so is the end of
// its connection. Rank 0 itself weighs all evidence.
void Shutdown::handle_failure_notice(const Incoming& incoming) {
  leave_fast_path();
  if (!coordinates()) {
    if (!incoming.gone && kind_of(incoming.bytes) == ControlMessage::kLost) {
      return end_world_without_way(std::string_view(incoming.bytes).substr(1));
    }
    // The first byte is the kind of the message, the rest the text.
    if (!incoming.gone) return end_world(incoming.bytes.substr(1));
    return end_world(world_.name_rank(incoming.rank) + " is gone: " + incoming.bytes);
  }
  note_evidence(incoming);
  look_for_evidence(Clock::now() + kEvidenceTimeout);
}

// A rank is gone by which this one reached rank 0.
void Shutdown::end_world_without_way(std::string_view lost) {
  WireReader in(lost);
  const std::int64_t rank = in.integer();
  const std::string how = in.text();
  if (!in.ok() || rank < 0 || rank >= world_.settings.size) {
    return end_world("a malformed message about a rank that is gone");
  }
  end_world(world_.name_rank(static_cast<int>(rank)) + " is gone: " + how);
}

void Shutdown::note_evidence(const Incoming& incoming) {
  // A rank that is cut off may well run: the one that cut it off is gone, and reported, too.
  if (incoming.cut_off) return;
  if (incoming.gone) return root_cause_.lost(incoming.rank, incoming.bytes);
  // kFailed: it began there. kBroken: that rank only noticed, and may be a victim.
  const bool own = kind_of(incoming.bytes) == ControlMessage::kFailed;
  root_cause_.complained(incoming.rank, incoming.bytes.substr(1),
                         own ? Origin::kHere : Origin::kUnknown);
}

// Rank 0: a rank cannot continue. Ends the world as soon as it is certain which rank was lost, or
// at the deadline.
void Shutdown::look_for_evidence(Deadline deadline) {
  // A lost connection is certain evidence. Complaints arrive earlier, because data connections
  // break before keep-alive notices; so rank 0 gives the control plane time to speak.
  while (!root_cause_.certain() && Clock::now() < deadline && !stop_asked()) {
    if (mailbox_.empty()) mailbox_.wait(deadline);
    while (!mailbox_.empty()) {
      const Incoming each = mailbox_.take();
      if (is_failure_notice(each)) note_evidence(each);
    }
  }
  // A leader's second connection to this rank may end seconds before the first one.
  if (const LeaderFastPath* const leaders = mailbox_.leaders();
      !root_cause_.certain() && leaders != nullptr && leaders->lost()) {
    root_cause_.lost(leaders->lost()->rank, leaders->lost()->how);
  }
  const auto cause = root_cause_.cause();
  // Nothing to report: the interruption by stop_now() ends the world with its own reason.
  if (!cause) return;
  end_world(world_.name_rank(cause->rank) + (cause->lost ? " is gone: " : ": ") + cause->text);
}

void Shutdown::data_plane_failed(const std::string& text, Origin origin) {
  if (state_ != State::kRunning) return;
  leave_fast_path();
  if (coordinates()) {
    // Rank 0's own observation counts like any other.
    root_cause_.complained(0, text, origin);
    return look_for_evidence(Clock::now() + kHostUpdateTimeout + kEvidenceTimeout);
  }
  const bool own = origin == Origin::kHere;
  // A failure that began here needs no other explanation.
  if (!own) wait_for_failure_notice(Clock::now() + kHostUpdateTimeout);
  if (state_ != State::kRunning) return;
  const ControlMessage kind = own ? ControlMessage::kFailed : ControlMessage::kBroken;
  notify_rank_0(kind, text);
  // Rank 0 may be blocked in the same operation: this interrupts it.
  mailbox_.channel().hang_up();
  wait_for_failure_notice(Clock::now() + kAnswerTimeout);
  if (state_ == State::kRunning) end_world(world_.name_rank(world_.settings.rank) + ": " + text);
}

void Shutdown::data_plane_failed(const Error& error) {
  if (const auto who = silent_ranks(); !who.empty() && state_ == State::kRunning) {
    return end_for_silence("setting up", who);
  }
  if (error.code == ErrorCode::kTimedOut && state_ == State::kRunning) {
    // Rank 0 knows which ranks are missing, and gives up first; so a worker that gets here misses
    // rank 0.
    leave_fast_path();
    // Its text lists the missing ranks; this rank could only say that it waited.
    if (!coordinates()) wait_for_failure_notice(Clock::now() + kHostUpdateTimeout);
    if (state_ != State::kRunning) return;
    const auto limit = std::chrono::duration_cast<seconds>(world_.settings.start_timeout);
    const std::string text =
        error.message + " for " + std::to_string(limit.count()) +
        " s (the limit is HOROVOD_GLOO_TIMEOUT_SECONDS):" +
        list_missing(coordinates() ? mailbox_.oob().missing() : std::vector<int>{0});
    if (!coordinates()) notify_rank_0(ControlMessage::kBroken, text);
    return end_world(text);
  }
  const bool broken_off = error.code == ErrorCode::kInterrupted;
  data_plane_failed(error.message, broken_off ? Origin::kElsewhere : Origin::kUnknown);
}

std::string Shutdown::list_missing(const std::vector<int>& missing) const {
  std::string text;
  for (const int rank : missing) {
    text += "\n  " + world_.name_rank(rank) +
            " does not answer; it is stopped, hangs, or waits for another rank";
  }
  return text;
}

// During a common setup, no stall inspector runs, so the waiting rank itself reports late ranks.
void Shutdown::look_for_late_ranks() {
  const Settings& settings = world_.settings;
  if (!settings.stall_check) return;
  const auto half = std::chrono::duration_cast<Clock::duration>(settings.start_timeout) / 2;
  const auto after = std::min<Clock::duration>(settings.stall_warning, half);
  mailbox_.oob().report_late(after, [this, after](const std::vector<int>& missing) {
    const auto waited = std::chrono::duration_cast<seconds>(after).count();
    // On the waiting thread, which does nothing else.
    os::log_warn("stall", "some ranks have waited for " + std::to_string(waited) +
                              " s for others to set up:" + list_missing(missing));
  });
}

// A worker: waits until rank 0 has sent the reason, or is gone itself.
void Shutdown::wait_for_failure_notice(Deadline deadline) {
  while (state_ == State::kRunning && Clock::now() < deadline && !stop_asked()) {
    // Other ranks may have given rank 0 up a little earlier, so this rank lost them.
    if (const auto who = silent_ranks(); !who.empty()) return end_for_silence("waiting", who);
    if (mailbox_.empty()) mailbox_.wait(deadline);
    while (state_ == State::kRunning && !mailbox_.empty()) {
      const Incoming each = mailbox_.take();
      if (is_failure_notice(each)) handle_failure_notice(each);
    }
  }
}

void Shutdown::notify_rank_0(ControlMessage kind, const std::string& text) {
  mailbox_.channel().send(0, control_message(kind, text));
  static_cast<void>(mailbox_.channel().flush(0, Clock::now() + kHostUpdateTimeout));
}

void Shutdown::give_up(const std::string& text) {
  if (!coordinates()) notify_rank_0(ControlMessage::kBroken, text);
  end_world(world_.name_rank(world_.settings.rank) + ": " + text);
}

void Shutdown::interrupt(const std::vector<int>& silent) {
  // The order of these three matters: the thread that abort() sets free must find the reason, and
  // the wake-up is for a thread that sleeps outside of a backend.
  interruption_.miss(silent);
  pool_.abort_all();
  mailbox_.channel().wake();
}

void Shutdown::stop_now(std::string reason) {
  interruption_.stop(std::move(reason));
  pool_.abort_all();
  mailbox_.channel().wake();
}

// No other rank has to be asked: the watchdog has done that.
void Shutdown::end_for_silence(const std::string& during, const std::vector<int>& silent) {
  std::string text = "stalled " + during + ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
                     std::to_string(world_.stall_limit().count()) + ":";
  for (const int rank : silent) {
    text +=
        "\n  " + world_.name_rank(rank) + " does not answer; its process or its host is stopped";
  }
  os::log_error("stall", text);
  end_world(text);
}

void Shutdown::end_world(const std::string& text) {
  if (state_ == State::kEnded) return;
  if (coordinates()) {
    mailbox_.channel().send_to_all(world_.other_ranks(),
                                   control_message(ControlMessage::kAbort, text));
    // Bounded: a rank that does not read must not keep the others from ending.
    static_cast<void>(mailbox_.channel().flush(-1, Clock::now() + seconds(1)));
  }
  fail_everything(text);
  // Ranks that are blocked in a collective see the end of the stream at once.
  mailbox_.channel().hang_up();
}

void Shutdown::fail_everything(const std::string& text) {
  // The first reason stays: later failures are consequences.
  if (text_.empty()) text_ = text;
  if (state_ == State::kRunning) {
    state_ = State::kEnded;
    observer_.world_ended(text);
    pool_.abort_all();
  }
  leave_fast_path();
  fail_operations_(text);
}

// The world is ending: posts on the fast path must not wake this rank any more.
void Shutdown::leave_fast_path() {
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(false);
}

// After a world broke, rank 0 reads until the others have closed their connections: closing a
// socket with unread data discards what was sent, and the others would name rank 0 as the cause.
void Shutdown::linger() {
  if (state_ != State::kEnded || !coordinates()) return;
  const Deadline deadline = Clock::now() + kLingerTimeout;
  while (mailbox_.gone_count() < world_.settings.size - 1 && Clock::now() < deadline) {
    mailbox_.wait(deadline);
    // Content no longer matters; reading keeps the kernel from resetting the connection.
    mailbox_.clear();
  }
}

}  // namespace hora::collectives
