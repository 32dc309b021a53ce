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

#include "launcher/transports/command_host.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/payload_store.h"
#include "launcher/transports/transport.h"

namespace hora::launcher {

class CommandTransport : public Transport {
 public:
  // `rsh_command` as rsh_argv() takes it; `passing_refusal`: JobSpec.
  CommandTransport(std::vector<std::string> rsh_command, StageObserver observer,
                   std::string passing_refusal, std::string advice = "")
      : command_(std::move(rsh_command)),
        passing_refusal_(std::move(passing_refusal)),
        advice_(std::move(advice)),
        observer_(std::move(observer)) {}
  ~CommandTransport() override;

  // Before the first start: gets the commands' output on stderr. From a thread of this object.
  void listen_to_errors(CommandHost::Listener listener) { listener_ = std::move(listener); }

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;
  // The same for a stream that was made already: `theirs` is the end that is not the supervisor's.
  Status adopt(std::shared_ptr<os::Fd> theirs, const Host& host, int host_index,
               const AgentImage& image, Clock::time_point deadline);

 private:
  Status start_thread();

  std::vector<std::string> command_;
  std::string passing_refusal_;
  std::string advice_;  // for a command that starts no agent; empty: the usual one
  StageObserver observer_;
  CommandHost::Listener listener_;
  std::mutex mutex_;
  std::unique_ptr<IoThreads> threads_;
  // Hosts live on the loop's thread alone; the destructor touches them only after that thread has
  // stopped.
  std::map<CommandHost*, std::unique_ptr<CommandHost>> hosts_;  // the loop's thread only
  PayloadStore payloads_;
};

}  // namespace hora::launcher
