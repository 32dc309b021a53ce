// SPDX-License-Identifier: Apache-2.0
// Collects the stacks of the ranks' processes. A Python that a rank starts connects here by itself
// (collectives/python/sitecustomize.py) and writes the stacks of all its threads when it gets a
// certain signal; no rights over other processes are needed. Ranks that use the runtime write
// native stacks, too (NativeStacks), and the collective that they are in (FlightRecords). For
// processes that do neither, the kernel's account is given: state, wait channel, CPU time. The
// address is an abstract socket: no file, gone with this process. Only processes of our own user
// that are descendants of a rank are accepted.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/native_stacks.h"
#include "launcher/agent/rank_processes.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class StackCollector {
 public:
  explicit StackCollector(os::EventLoop& loop) : loop_(loop), native_(loop) {}
  ~StackCollector();
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;

  // Answers the name of the meeting place, empty when there is none: stacks are a help, no
  // condition.
  const std::string& open();
  // The signal that asks; a real-time one that programs leave alone.
  static int signal_number();

  // `done` is called once, when all that was said has come or the time is up. One at a time.
  // `records` has to live until then. With a limit of 0 no process is asked for its stacks.
  void collect(std::vector<RankProcess> ranks, FlightRecords& records, Milliseconds timeout,
               std::function<void(StackReport)> done);

 private:
  struct Peer {
    os::Fd fd;
    pid_t pid = -1;
    std::string text;
    bool asked = false;
    int rank = -1;  // whose process it is
  };

  void on_connection();
  void on_readable(int fd);
  void look_again();
  void name_stacks();
  void finish(const std::map<pid_t, std::string>& stacks);
  ProcessStacks describe(int rank, pid_t pid) const;

  os::EventLoop& loop_;
  os::Fd listener_;
  std::string name_;
  std::map<int, Peer> peers_;  // by descriptor
  NativeStacks native_;
  FlightRecords* records_ = nullptr;
  std::vector<RankProcess> ranks_;
  std::function<void(StackReport)> done_;
  os::EventLoop::TimerId timer_ = 0;
  Clock::time_point deadline_;
  Clock::time_point last_received_;
};

}  // namespace hora::launcher
