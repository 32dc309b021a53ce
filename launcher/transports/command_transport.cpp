// SPDX-License-Identifier: Apache-2.0
// Any command that gives a byte stream to a host: `ssh -q`, `kubectl exec -i`, `docker exec -i`.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/command_host.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/payload_store.h"
#include "launcher/transports/registry.h"
#include "launcher/transports/rsh_argv.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kEndPatience{300};  // for all children together

class CommandTransport : public Transport {
 public:
  CommandTransport(std::vector<std::string> command, StageObserver observer)
      : command_(std::move(command)), observer_(std::move(observer)) {}
  ~CommandTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;

 private:
  Status start_thread();

  std::vector<std::string> command_;
  StageObserver observer_;
  std::mutex mutex_;
  std::unique_ptr<IoThreads> threads_;
  // Hosts live on the loop's thread alone; the destructor touches them only after that thread has
  // stopped.
  std::map<CommandHost*, std::unique_ptr<CommandHost>> hosts_;  // the loop's thread only
  PayloadStore payloads_;
};

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
                                       // A user error, found before any process starts.
                                       Clock::time_point deadline) {
  if (command_.empty()) return make_error(ErrorCode::kUsage, "--rsh names no command");
  HORA_TRY(start_thread());
  auto pair = make_supervisor_pair(host.name);
  if (!pair) return std::move(pair).error();
  AgentLinkOptions options;
  options.host = "host " + host.name;
  options.host_index = host_index;
  options.image = image;
  options.payloads = payloads_.of(image);
  options.observer = observer_;
  options.lost_class = failure::kRsh;
  options.shell_class = failure::kRsh;
  options.shell_advice =
      "try the command by hand: " + rsh_program(command_) +
      " ... must pass stdin and stdout through, unchanged and without a terminal";
  os::EventLoop& loop = threads_->loop(0);
  loop.post([this, &loop, theirs = pair->transport, options = std::move(options), host,
             deadline]() mutable {
    auto made = std::make_unique<CommandHost>(
        loop, std::move(*theirs), std::move(options), host, command_, deadline,
        // A host asks for its removal from inside its own callback, so the removal takes a turn of
        // its own.
        [this, &loop](CommandHost* done) { loop.post([this, done] { hosts_.erase(done); }); });
    CommandHost* started = made.get();
    hosts_[started] = std::move(made);
    started->begin();
  });
  return std::move(pair->supervisor);
}

// The order matters: no thread posts, then the loop stops, then this thread owns the hosts.
CommandTransport::~CommandTransport() {
  if (!threads_) return;
  payloads_.close();  // its threads post to the loop
  threads_->stop();
  for (auto& [key, host] : hosts_) host->hurry();
  // One deadline for all children: a thousand of them must not take a thousand times the patience.
  const auto deadline = Clock::now() + kEndPatience;
  for (auto& [key, host] : hosts_) {
    while (!host->child_has_ended() && Clock::now() < deadline) ::poll(nullptr, 0, 2);
  }
  hosts_.clear();  // kills what is left
}

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
      return make_command_transport(job.rsh_command, std::move(observer));
    }};

}  // namespace

const TransportDescriptor* command_transport_descriptor() { return &kDescriptor; }

std::unique_ptr<Transport> make_command_transport(std::vector<std::string> rsh_command,
                                                  StageObserver observer) {
  return std::make_unique<CommandTransport>(std::move(rsh_command), std::move(observer));
}

}  // namespace hora::launcher
