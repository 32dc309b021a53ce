// SPDX-License-Identifier: Apache-2.0
// The job's standard streams: rank output to the console and files, standard input to ranks, and
// the flow control of both. On the event loop's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/input_pump.h"
#include "launcher/output/output_sinks.h"
#include "launcher/output/output_writer.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/protocol/agent_conversation.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// What it says to hosts.
using StreamMessage = std::variant<OutputTaken, RankInput, RankInputEnd, ResizeTerminal>;

class JobStreams {
 public:
  struct Handlers {
    // Puts a message on a host's link; false when the link is gone.
    std::function<bool(int host, const StreamMessage& message)> send;
    // Standard output or standard error takes nothing more: EPIPE when its reader has gone, ENOSPC,
    // EIO, ... A user who has closed standard error wants nothing of it.
    std::function<void(int fd, int errnum)> on_console_broken;
    std::atomic<bool>& row_is_open;  // see OutputSinks
  };

  JobStreams(os::EventLoop& loop, const JobSpec& spec, const Plan& plan, Handlers handlers);
  ~JobStreams() { release_terminal(); }

  // Opens the files of --output-filename. Nothing is started before this succeeded.
  Status open() { return sinks_.open(); }

  // One more process of an elastic job, the next number; see OutputSinks::add_rank().
  Status add_rank(int host, RankPlace place);
  OutputSinks& sinks() { return sinks_; }

  void start_input();
  void resume_input();  // after SIGCONT the terminal may be ours again
  // Where rank 0 has a terminal: the user's has another size, or is not rank 0's for now.
  void resize_terminal();
  void release_terminal();
  void input_delivered(std::size_t bytes) { input_.delivered(bytes); }
  void rank_ended(int rank);

  // The incomplete files of --output-filename: each once. Complete when finish() is done.
  struct CutFile {
    std::string path;
    int errnum = 0;
  };
  const std::vector<CutFile>& cut_files() const { return cut_files_; }

  // Bytes of rank output that are written.
  std::size_t written() const { return written_; }
  bool is_behind() const { return writer_.is_behind(); }

  // No more input; everything held goes out; `done` when it is written.
  void finish(std::function<void()> done);

 private:
  int send_input(std::string_view bytes);
  void take_terminal();
  void acknowledge(int host, std::size_t bytes);
  void on_broken(int fd, int errnum);

  Handlers handlers_;
  StdinPolicy stdin_policy_;
  bool has_pty_;               // rank 0
  bool started_ = false;       // so have the ranks
  bool reads_keys_ = false;    // of the user's terminal, for that of rank 0
  bool at_line_start_ = true;  // of what rank 0 gets
  std::vector<bool> rank_lives_;
  std::vector<int> host_of_rank_;
  std::vector<std::size_t> unacknowledged_;  // by host: written, and the agent does not know
  std::size_t written_ = 0;
  OutputWriter writer_;
  OutputSinks sinks_;
  InputPump input_;
  std::vector<CutFile> cut_files_;
};

}  // namespace hora::launcher
