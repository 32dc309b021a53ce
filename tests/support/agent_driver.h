// SPDX-License-Identifier: Apache-2.0
// A launcher for tests: starts an agent on this machine and speaks the agent protocol with it over
// a socketpair. Every wait has a deadline and throws when it passes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::test {

// The agent that was built with the tests.
std::string agent_path();

class AgentDriver {
 public:
  explicit AgentDriver(std::vector<std::string> arguments = {});
  // The launcher's end of a stream to an agent that was started elsewhere.
  explicit AgentDriver(os::Fd stream) : stream_(std::move(stream)), reaped_(true) {}
  ~AgentDriver();  // closes the stream and waits for the shim's end
  AgentDriver(const AgentDriver&) = delete;
  AgentDriver& operator=(const AgentDriver&) = delete;

  void send(launcher::FrameType type, std::string_view payload = {});
  void send_number(launcher::FrameType type, std::uint32_t number);
  void send_order(const launcher::HostOrder& order);

  // The next frame that is not a heartbeat; nothing at the end of the stream.
  std::optional<launcher::Frame> next(Milliseconds timeout = Milliseconds(20'000));
  // Skips to a frame of this type, taking in output and exits on the way.
  launcher::Frame wait_for(launcher::FrameType type, Milliseconds timeout = Milliseconds(20'000));
  launcher::Hello hello();
  // Order, ready, start, and all frames up to the goodbye.
  void run(const launcher::HostOrder& order);
  void start(const launcher::HostOrder& order);  // until kStarted
  void wait_for_goodbye(Milliseconds timeout = Milliseconds(60'000));
  // Until output of this rank holds `text`.
  void wait_for_output(int rank, std::string_view text);
  // True when the agent closed the stream in time; earlier frames are taken in.
  bool wait_for_end(Milliseconds timeout = Milliseconds(20'000));

  void close() { stream_.reset(); }
  int stream() const { return stream_.get(); }
  pid_t shim() const { return shim_; }
  pid_t agent();  // the shim's child
  bool reap_shim(Milliseconds timeout = Milliseconds(20'000));
  // Kills agent and shim in one moment, so that neither can clean up; true when both are gone.
  bool kill_both();

  // Output is acknowledged as it is taken in, unless this is off.
  bool acknowledge_output = true;
  // Called with each piece of output instead of keeping it.
  std::function<void(int rank, int stream, std::string_view bytes)> on_output;

  std::map<std::pair<int, int>, std::string> output;  // by rank and stream (1, 2)
  std::map<std::pair<int, int>, int> output_ends;
  std::map<int, launcher::RankExit> exits;
  std::map<int, pid_t> pids;
  std::vector<launcher::FrameType> order_of_frames;  // heartbeats left out
  int heartbeats = 0;
  std::optional<launcher::Goodbye> goodbye;
  std::optional<launcher::Failure> failure;
  std::map<int, std::size_t> input_acknowledged;

 private:
  void take_in(const launcher::Frame& frame);
  bool fill(Clock::time_point deadline);

  os::Fd stream_;
  pid_t shim_ = -1;
  bool reaped_ = false;
  launcher::MagicFinder magic_;
  bool greeted_ = false;
  launcher::FrameReader reader_;
};

// An order for `ranks` ranks of `argv`, in "/", with PATH and a unique job id.
launcher::HostOrder make_order(std::vector<std::string> argv, int ranks = 1);
// The same for a line of shell.
launcher::HostOrder shell_order(const std::string& line, int ranks = 1);

// Living processes (some thread of theirs is) whose environment holds `text`, or that have it in
// their command line: two independent ways to see which are left.
std::vector<pid_t> processes_with_environment(const std::string& text);
std::vector<pid_t> processes_with_argument(const std::string& text);
// Waits until neither finds any, and no process has a socket whose name begins with `argument`;
// false when the time is up.
bool all_gone(const std::string& job_id, const std::string& argument,
              std::chrono::milliseconds timeout);

// A word that no other process has in its command line.
std::string unique_word(std::string_view stem);

}  // namespace hora::test
