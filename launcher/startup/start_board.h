// SPDX-License-Identifier: Apache-2.0
// How far each host has come on its way to running ranks, and since when: the line on a terminal,
// the table when time is up, the waterfall of --timings.  [pure]
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/startup/start_stage.h"
#include "rendezvous/base/duration.h"

namespace hora::launcher {

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
  // The ranks run, or the job ends: of what comes later only the stages behind kRanks count, by
  // which ranks that use the runtime meet.
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
  // One row per host: host, stage, how long in it, the last that was heard. Hosts in the same stage
  // with nothing to say are one row when there are many.
  std::string table(TimePoint now) const;
  // Milliseconds per stage, and a bar on one scale for all hosts.
  std::string waterfall() const;

 private:
  const Step* last(std::size_t host) const;
  std::string meeting_line(TimePoint now, std::size_t width) const;

  TimePoint start_;
  TimePoint end_{};
  bool stopped_ = false;
  std::vector<std::string> names_;
  std::vector<std::vector<Step>> steps_;  // by host
};

// Why a host may stay in a stage, in one sentence; and the command that shows it, "{host}" standing
// for the host.
struct StageAdvice {
  std::string_view cause;
  std::string_view command;
};
StageAdvice stage_advice(Stage stage);

}  // namespace hora::launcher
