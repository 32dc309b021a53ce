// SPDX-License-Identifier: Apache-2.0
// How far each host has come on its way to running ranks, and since when: the line on a terminal,
// and the table when time runs out.  [pure]
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/time.h"

namespace hora::launcher {

// How far a host has come on its way to running ranks.

// For progress, --timings and start-up errors. Transports report up to kAgent, the supervisor what
// follows.
enum class Stage {
  kAbsent,  // its engine has not started it yet: horarun tries again
  kResolve,
  kConnect,
  kBanner,  // connected; its ssh server has yet to say that it is one
  kHostKey,
  kAuthenticate,
  kShell,
  kShip,
  kAgent,
  kRoute,    // tries which addresses lead to the other hosts
  kPrepare,  // has its order
  kReady,
  kRanks,
  kRendezvous,       // its ranks meet the others
  kFirstCollective,  // they have met; the first operation is still to end
  kWork,
};
inline constexpr std::size_t kStages = static_cast<std::size_t>(Stage::kWork) + 1;
std::string_view stage_name(Stage stage);

// How far each host has come on its way to running ranks, and since when: the line on a terminal,
// the table when time is up, the waterfall of --timings.

class StartBoard {
 public:
  using TimePoint = Clock::time_point;

  struct Step {
    Stage stage = Stage::kResolve;
    TimePoint since{};
    std::string detail;
  };

  explicit StartBoard(TimePoint start) : start_(start) {}

  void name_hosts(std::vector<std::string> names);
  // A stage that the host is in already only gets the new detail.
  void reach(int host, Stage stage, std::string_view detail, TimePoint now);
  // How many bytes the host was sent before its ranks could start.
  void note_sent(int host, std::size_t bytes);
  std::size_t sent(std::size_t host) const { return host < sent_.size() ? sent_[host] : 0; }
  // The ranks run, or the job ends: of later reports only the stages after kRanks count, in which
  // ranks that use the runtime meet.
  void stop(TimePoint now);
  bool stopped() const { return stopped_; }
  // Some ranks meet, and not all have come through their first collective.
  bool meeting() const;

  const std::vector<std::vector<Step>>& steps() const { return steps_; }
  const std::vector<std::string>& names() const { return names_; }
  TimePoint start() const { return start_; }
  TimePoint end(TimePoint now) const { return stopped_ ? end_ : now; }

  // "4 of 8 hosts ready, 1.2 s; node3: authenticate, node5: connect", at most `width` characters;
  // while ranks meet "ranks run on 8 hosts, 4.2 s; node3: ranks, node1: rendezvous".
  std::string line(TimePoint now, std::size_t width) const;
  // One row per host: host, stage, how long in it, the last message. Hosts in the same stage
  // without a message are one row when there are many.
  std::string table(TimePoint now) const;
  // Milliseconds per stage, and a bar on one scale for all hosts, with the meaning of its letters.
  std::string waterfall() const;

 private:
  const Step* last(std::size_t host) const;
  std::string meeting_line(TimePoint now, std::size_t width) const;

  TimePoint start_;
  TimePoint end_{};
  bool stopped_ = false;
  std::vector<std::string> names_;
  std::vector<std::vector<Step>> steps_;  // by host
  std::vector<std::size_t> sent_;         // bytes, by host
};

// Why a host may stay in a stage, in one sentence; and the command that shows it, "{host}" standing
// for the host.
struct StageAdvice {
  std::string_view cause;
  std::string_view command;
};
StageAdvice stage_advice(Stage stage);

// The text of a start that timed out.

// The table of hosts and stages, and for each stage in which hosts stand the likely cause and the
// command that shows it. `reach`: see reach_words().
std::string start_timeout_text(const StartBoard& board, StartBoard::TimePoint now,
                               const std::string& reach);

}  // namespace hora::launcher
