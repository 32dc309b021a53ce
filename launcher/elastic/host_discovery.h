// SPDX-License-Identifier: Apache-2.0
// Runs a discovery script again and again, the user's or an engine's, and reports its output. On
// the event loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/process/piped_child.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher::elastic {

class HostDiscovery {
 public:
  struct Options {
    std::string script;                         // a line for /bin/sh
    std::chrono::milliseconds interval{1'000};  // from the end of a run to the next
    std::chrono::milliseconds timeout{30'000};  // then a run is killed and has failed
  };
  struct Handlers {
    // The script's output.
    std::function<Result<std::vector<Host>>(std::string_view output)> read;
    std::function<void(std::vector<Host> hosts)> on_hosts;
    // One line: how it failed, and what it wrote to standard error.
    std::function<void(std::string why)> on_failure;
  };

  HostDiscovery(os::EventLoop& loop, Options options, Handlers handlers);
  ~HostDiscovery();
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  // The first run begins now.
  void start() { run(); }
  // The next run begins now, if none is under way.
  void hurry();
  // No run after this; one that is under way is killed.
  void stop();

 private:
  void run();
  void read(os::Fd& pipe, std::string& text);
  void look();
  void conclude(std::string problem);
  void forget_child();

  os::EventLoop& loop_;
  Options options_;
  Handlers handlers_;
  std::optional<PipedChild> child_;
  std::string output_;
  std::string complaint_;
  os::EventLoop::TimerId next_ = 0;
  os::EventLoop::TimerId deadline_ = 0;
  os::EventLoop::TimerId look_ = 0;
  bool stopped_ = false;
};

}  // namespace hora::launcher::elastic
