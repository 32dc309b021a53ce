// SPDX-License-Identifier: Apache-2.0
// Any command that gives a byte stream to a host: `ssh`, `kubectl exec -i`, `docker exec -i`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/transports/agent_link.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/transport.h"

namespace hora::launcher {

class CommandHost;  // one host and its child process

// A host on its way.
struct HostStart {
  std::shared_ptr<os::Fd> stream;  // the end that is not the supervisor's
  Host host;
  int host_index = 0;
  AgentImage image;
  Clock::time_point deadline;
};

class CommandTransport : public Transport {
 public:
  // Receives what the commands print on stderr, on a thread of the transport.
  using ErrorListener = std::function<void(std::string_view printed)>;

  struct Command {
    std::vector<std::string> words;  // as rsh_argv() takes them
    std::string passing_refusal;     // as in JobSpec; empty: none
    std::string advice;              // for a command that starts no agent; empty: the usual one
    ErrorListener on_errors;         // may be empty
  };

  CommandTransport(Command command, StageObserver observer, std::shared_ptr<FanOut> fan_out);
  ~CommandTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;
  // The same for a stream that exists already.
  Status adopt(HostStart start);

 private:
  Status start_thread();

  const Command command_;
  StageObserver observer_;
  std::shared_ptr<FanOut> fan_out_;
  AgentPayloads payloads_;
  std::mutex mutex_;
  std::unique_ptr<IoThreads> threads_;
  // For the loop's thread alone; the destructor touches them after that thread has stopped.
  std::map<CommandHost*, std::unique_ptr<CommandHost>> hosts_;
};

}  // namespace hora::launcher
