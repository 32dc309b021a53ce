// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/command_transport.h"

#include <poll.h>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/registry.h"
#include "launcher/transports/rsh_argv.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kEndPatience{300};  // for all children together

}  // namespace

// Lazily: a transport that no host uses starts no thread.
Status CommandTransport::start_thread() {
  std::lock_guard lock(mutex_);
  if (threads_) return Ok{};
  auto threads = IoThreads::start(1);
  if (!threads) return std::move(threads).error();
  threads_ = *std::move(threads);
  return Ok{};
}

Result<os::Fd> CommandTransport::start(const Host& host, int host_index, const AgentImage& image,
                                       Clock::time_point deadline) {
  auto pair = make_supervisor_pair(host.name);
  if (!pair) return std::move(pair).error();
  HORA_TRY(adopt(pair->transport, host, host_index, image, deadline));
  return std::move(pair->supervisor);
}

Status CommandTransport::adopt(std::shared_ptr<os::Fd> theirs, const Host& host, int host_index,
                               const AgentImage& image, Clock::time_point deadline) {
  // A user error, found before any process starts.
  if (command_.empty()) return make_error(ErrorCode::kUsage, "--rsh names no command");
  HORA_TRY(start_thread());
  AgentLinkOptions options;
  options.host = "host " + host.name;
  options.host_index = host_index;
  options.image = image;
  // srun drops what is under way when the agent ends while input for it is arriving.
  options.image.arguments.push_back("--stay");
  options.payloads = payloads_.of(image);
  options.observer = observer_;
  options.lost_class = failure::kRsh;
  options.shell_class = failure::kRsh;
  options.shell_advice =
      !advice_.empty() ? advice_
                       : "try the command by hand: " + rsh_program(command_) +
                             " ... must pass stdin and stdout through, unchanged and without a "
                             "terminal";
  os::EventLoop& loop = threads_->loop(0);
  loop.post([this, &loop, theirs = std::move(theirs), options = std::move(options), host,
             deadline]() mutable {
    auto made = std::make_unique<CommandHost>(
        loop, std::move(*theirs), std::move(options), host, command_, deadline,
        // A host asks for its removal from inside its own callback, so the removal takes a turn of
        // its own.
        [this, &loop](CommandHost* done) { loop.post([this, done] { hosts_.erase(done); }); });
    made->listen_to_errors(listener_);
    made->try_again_after(passing_refusal_);
    CommandHost* started = made.get();
    hosts_[started] = std::move(made);
    started->begin();
  });
  return Ok{};
}

// The order matters: no thread posts, then the loop stops, then this thread owns the hosts.
CommandTransport::~CommandTransport() {
  if (!threads_) return;
  payloads_.close();  // its threads post to the loop
  threads_->stop();
  for (auto& [key, host] : hosts_) host->hurry();
  // One deadline for all children: a thousand of them must not take a thousand times as long.
  const auto deadline = Clock::now() + kEndPatience;
  for (auto& [key, host] : hosts_) {
    while (!host->child_has_ended() && Clock::now() < deadline) ::poll(nullptr, 0, 2);
  }
  hosts_.clear();  // kills what is left
}

namespace {

// Only --rsh (or the MPI Operator's variable) can say which command reaches a host.
Status configure(JobSpec& job) {
  if (!job.rsh_command.empty()) return Ok{};
  return make_error(ErrorCode::kUsage,
                    "--transport command needs --rsh, such as --rsh 'kubectl exec -i'");
}

constexpr TransportDescriptor kDescriptor{
    .name = "command",
    .how = "one child process per host; its stdin and stdout are the stream",
    .options = "--rsh",
    .takes_command = true,
    .configure = configure,
    .create = [](const JobSpec& job, StageObserver observer) {
      return make_command_transport(job.rsh_command, std::move(observer), job.passing_refusal);
    }};

}  // namespace

const TransportDescriptor* command_transport_descriptor() { return &kDescriptor; }

std::unique_ptr<Transport> make_command_transport(std::vector<std::string> rsh_command,
                                                  StageObserver observer,
                                                  std::string passing_refusal) {
  return std::make_unique<CommandTransport>(std::move(rsh_command), std::move(observer),
                                            std::move(passing_refusal));
}

}  // namespace hora::launcher
