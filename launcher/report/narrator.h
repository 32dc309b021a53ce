// SPDX-License-Identifier: Apache-2.0
// All that a job says: to a person on standard error (the line of the start, messages, the
// outcome), to a program (--json events), and to the report (--report). It prints and records; it
// decides nothing. On the event loop's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/job_figures.h"
#include "launcher/job/job_state.h"
#include "launcher/job/restart_policy.h"
#include "launcher/network/network_choice.h"
#include "launcher/output/console.h"
#include "launcher/plan/chaos.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/report/advice.h"
#include "launcher/report/event_log.h"
#include "launcher/report/job_report.h"
#include "launcher/report/lost_records.h"
#include "launcher/startup/start_display.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// A job that is over, for its last messages and its report.
struct EndedJob {
  const JobOutcome& outcome;
  const Plan& plan;
  std::vector<std::optional<Hello>> hellos;  // by host
  std::string stacks;                        // the last hang report
  EndOfOutput end;                           // records_lost is the narrator's to know
  // Of --restarts: the attempts that have failed, this one included; how the job goes on ("restart
  // 1 of 3"; empty: it is over), or why it does not.
  std::vector<RestartPolicy::Attempt> failed_attempts;
  std::string restart;
  std::string why_not_restarted;
  std::vector<bool> local = {};      // by host: it is this machine
  std::chrono::milliseconds ran{0};  // for which all ranks ran
  std::vector<UsagePoint> usage = {};
};

// How a host has got the runtime that it lacked.
struct RuntimeSource {
  std::size_t sent_bytes = 0;      // by the launcher
  std::size_t fetched_bytes = 0;   // from other hosts
  std::vector<std::string> hosts;  // these
};

class Narrator {
 public:
  // The clock of the job starts now. `spec` and `environment` must outlive this object.
  Narrator(const JobSpec& spec, const EnvironmentList& environment);
  ~Narrator();
  Narrator(const Narrator&) = delete;
  Narrator& operator=(const Narrator&) = delete;

  // From now on its messages appear, and the log goes through it. Starts a thread.
  void open(os::EventLoop& loop, std::string job_id);
  // For a person; a program gets an event instead. Whole lines.
  void print(const std::string& text);

  // --- the start ---
  void allocation_found(const JobEngine& engine);
  Clock::time_point start() const { return timings_.start(); }
  void mark(std::string phase) { timings_.mark(std::move(phase)); }
  void begin_start(std::vector<std::string> hosts);
  void reach(int host, const std::string& name, Stage stage, std::string_view detail = {});
  void agent_greeted(int host, const std::string& name, const Hello& hello, bool lacks_runtime,
                     std::size_t shipped_bytes);
  // A vendor's library is on its way, which may take a while.
  void vendor_part_sent(const std::string& library, std::size_t bytes, int hosts);
  void runtime_supplied(const std::string& name, const RuntimeSource& source);
  void network_chosen(const std::string& name, const HostRoute& route);
  void ranks_started(int host, const std::string& name, const Started& started,
                     std::size_t shipped_bytes);
  void all_ranks_run() { display_.ranks_run(); }
  void end_start() { display_.stop(); }
  // Keeps where the hosts stand, to be shown with the outcome: time was up.
  void keep_start_table();
  void show_start();

  // --- ranks ---
  void output_follows() { display_.hide(); }
  std::atomic<bool>& row_is_open() { return row_is_open_; }  // see Console
  void key_pressed();  // that is a signal: a terminal that shows it as ^C is in the middle of a row
  bool shows_start() const { return display_.is_shown(); }
  std::size_t live_width() const { return display_.live_width(); }
  void progress(const std::string& text, const JobFigures& figures);  // of --progress
  void agent_logged(const std::string& name, const LogLine& line);
  void rank_ended(const std::string& name, const RankExit& exit);
  void gpu_failed(const std::string& name, GpuFault fault);
  void fault_injected(ChaosStrike strike);
  void stalled(std::chrono::milliseconds silence, const std::string& text);
  void hang_report(const std::string& text);
  void epoch_began(int epoch, int ranks, const std::string& plan);
  void elastic_message(const std::string& text, bool is_warning);

  // --- the end ---
  void lose(LostRecord record);
  // Says how the job ended, writes the report, and returns the launcher's exit code. Of a job that
  // is started again the last attempt writes the report.
  int end(const EndedJob& job);
  // Calls `done` when all that was said is written; `events_lost` when --json is not whole.
  void flush(std::function<void(bool events_lost)> done);

 private:
  void say(std::string text);  // on standard error
  void report_absent(int host, const std::string& name, std::string_view why);
  void report_restart(const EndedJob& job);
  void report_placement(const std::string& note);
  int exit_code(const EndedJob& job) const;
  void write_report_of(const EndedJob& job, const std::string& text);
  JobReport record(const EndedJob& job, std::string text) const;
  std::string job_end(const EndedJob& job, const std::string& message) const;

  const JobSpec& spec_;
  const EnvironmentList& environment_;
  std::string job_id_;
  os::EventLoop* loop_ = nullptr;
  std::atomic<bool> row_is_open_{false};
  std::optional<Console> console_;
  Timings timings_;
  StartDisplay display_;
  EventLog events_;
  std::set<int> absent_;     // hosts that were reported as absent
  std::string start_table_;  // kept by keep_start_table()
  std::vector<LostRecord> lost_;
  std::vector<HostGpuFault> gpu_faults_;
  std::vector<ChaosStrike> strikes_;
};

}  // namespace hora::launcher
