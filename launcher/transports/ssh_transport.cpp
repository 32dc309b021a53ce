// SPDX-License-Identifier: Apache-2.0
// ssh: by libssh where this build has it, otherwise by the system's client.
//
// With libssh, a few threads with an event loop each serve all hosts, one connection per host. A
// host stays on its thread, so SshHost needs no locks. start() only makes a socketpair and posts
// the work.
#include <utility>

#include "launcher/transports/ssh_target.h"
#include "launcher/transports/transport.h"
#if HORA_WITH_SSH
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/command_transport.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/libssh.h"
#include "launcher/transports/ssh_config.h"
#include "launcher/transports/ssh_host.h"
#include "launcher/transports/supervisor_socket.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"
#endif

namespace hora::launcher {

#if HORA_WITH_SSH
namespace {

constexpr int kMostThreads = 4;
constexpr int kMostNames = 16;   // looked up at a time; each may wait for a silent name server
constexpr int kMostConfigs = 4;  // ssh programs that read the configuration at a time
// The supervisor has the same deadline. The transport knows better what went wrong, so it reports a
// little earlier.
constexpr std::chrono::milliseconds kReportEarlier{150};
// For hosts that come late, the supervisor names all that are absent.
constexpr std::chrono::milliseconds kReportLater{1'000};
// libssh may wait for a key on a dead file system, or for an ssh-agent that asks its user. A job
// that is over does not wait for it.
constexpr std::chrono::milliseconds kStopTimeout{1'000};

// Forwards stages to the supervisor until close(). The lock is held during the call, so no call is
// under way once close() has returned.
class Announcements {
 public:
  explicit Announcements(StageObserver observer) : observer_(std::move(observer)) {}

  void report(int host_index, Stage stage, std::string_view detail) {
    const std::lock_guard lock(mutex_);
    if (observer_) observer_(host_index, stage, detail);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    observer_ = nullptr;
  }

 private:
  std::mutex mutex_;
  StageObserver observer_;
};

// Everything that the threads use. If a thread is stuck in libssh when the job ends, this object is
// leaked on purpose, because that thread may still touch it.
struct Engine {
  using Hosts = std::map<SshHost*, std::unique_ptr<SshHost>>;

  explicit Engine(StageObserver observer) : announcements(std::move(observer)) {}

  Announcements announcements;
  BlockingCalls resolver{kMostNames};
  AgentPayloads payloads;
  std::vector<Hosts> hosts;  // of each thread, and touched by it only
  std::unique_ptr<IoThreads> threads;
};

// The hosts that the ssh program connects to.
class ByProgram {
 public:
  ByProgram(std::shared_ptr<SshTargets> targets, StageObserver observer,
            std::shared_ptr<FanOut> fan_out)
      : targets_(std::move(targets)),
        observer_(std::move(observer)),
        fan_out_(std::move(fan_out)) {}

  // Any thread.
  Status connect(const HostStart& start, const std::string& why) {
    const std::string& name = start.host.name;
    const std::lock_guard lock(mutex_);
    if (closed_) return make_error(ErrorCode::kInterrupted, "the job is over");
    // Once for each reason, however many hosts have it.
    if (reported_.insert(why).second) {
      os::log_warn("ssh", "the ssh program connects to " + name +
                              ", since libssh cannot do all that it takes: " + why);
    }
    if (!commands_) {
      commands_ = std::make_unique<CommandTransport>(
          CommandTransport::Command{
              targets_->program_command(),
              "",
              "`ssh " + name + " true` must work without a terminal and without a question",
              {}},
          observer_, fan_out_);
    }
    return commands_->adopt(start);
  }
  // Ends the connections. A thread that is stuck in libssh may still call connect().
  void close() {
    std::unique_ptr<CommandTransport> last;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    last.swap(commands_);
  }

 private:
  std::shared_ptr<SshTargets> targets_;
  StageObserver observer_;
  std::shared_ptr<FanOut> fan_out_;
  std::mutex mutex_;
  std::set<std::string> reported_;
  std::unique_ptr<CommandTransport> commands_;
  bool closed_ = false;
};

class SshTransport : public Transport {
 public:
  SshTransport(SshTransportOptions options, const StageObserver& observer)
      : options_(std::move(options)),
        observer_(observer),
        fan_out_(std::make_shared<FanOut>(options_.fan_out)),
        targets_(std::make_shared<SshTargets>(options_.ssh)),
        by_program_(std::make_shared<ByProgram>(targets_, observer, fan_out_)) {}
  ~SshTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;

 private:
  Status start_engine();
  void connect(const HostStart& start, SshTarget target);
  AgentLinkOptions link_options(const HostStart& start, const SshTarget& target);

  SshTransportOptions options_;
  StageObserver observer_;
  // Shared with threads that may outlive this.
  std::shared_ptr<FanOut> fan_out_;
  std::shared_ptr<SshTargets> targets_;
  std::shared_ptr<ByProgram> by_program_;
  BlockingCalls configuration_{kMostConfigs};
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::size_t next_thread_ = 0;
};

// Starts on first use, so a job without remote hosts loads neither libssh nor threads. The caller
// holds the lock.
Status SshTransport::start_engine() {
  if (engine_) return Ok{};
  HORA_TRY(prepare_libssh());
  int count = options_.io_threads;
  if (count <= 0) {
    count = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  }
  auto threads = IoThreads::start(count);
  if (!threads) return std::move(threads).error();
  engine_ = std::make_unique<Engine>(observer_);
  engine_->hosts.resize(static_cast<std::size_t>(count));
  engine_->threads = *std::move(threads);
  return Ok{};
}

// The configuration is read in a thread of its own, unless it is remembered: ssh runs for about
// 10 ms, and its `Match exec` for as long as it likes.
Result<os::Fd> SshTransport::start(const Host& host, int host_index, const AgentImage& image,
                                   Clock::time_point deadline) {
  HORA_TRY(targets_->check());
  auto pair = make_supervisor_pair(host.name);
  if (!pair) return std::move(pair).error();
  {
    const std::lock_guard lock(mutex_);
    HORA_TRY(start_engine());
  }
  const HostStart start{pair->transport, host, host_index, image, deadline};
  const BlockingCalls::Question question = [this, start, targets = targets_] {
    auto target = targets->target_of(start.host);
    SshTarget result;
    if (target) {
      result = *std::move(target);
    } else {
      result.name = result.address = start.host.name;
      result.problem = target.error().message;
    }
    return [this, start, result] { connect(start, result); };
  };
  std::optional<Error> no_thread;
  // A turn of a thread takes longer than to look up what is remembered.
  if (targets_->remembers(host)) {
    question()();
  } else {
    configuration_.ask(question, [&no_thread](Error error) { no_thread = std::move(error); });
  }
  if (no_thread) return *std::move(no_thread);
  return std::move(pair->supervisor);
}

AgentLinkOptions SshTransport::link_options(const HostStart& start, const SshTarget& target) {
  AgentLinkOptions options;
  options.host = target.describe("");
  options.host_index = start.host_index;
  options.image = start.image;
  options.payloads = &engine_->payloads;
  options.observer = [engine = engine_.get()](int index, Stage stage, std::string_view detail) {
    engine->announcements.report(index, stage, detail);
  };
  options.lost_class = failure::kHostLost;
  options.shell_class = failure::kRemoteShell;
  options.shell_advice = "`ssh " + start.host.name +
                         " /bin/sh -c true` must work without a terminal and without a question";
  return options;
}

// From start(), or from a thread that reads the configuration.
void SshTransport::connect(const HostStart& start, SshTarget target) {
  if (!target.program_reason.empty()) {
    const auto begun = by_program_->connect(start, target.program_reason);
    if (begun) return;
    target.problem = begun.error().message;
  }
  SshHost::ByProgram by_program;
  if (targets_->has_program()) {
    by_program = [programs = by_program_, start](os::Fd supervisor, const std::string& why) {
      *start.stream = std::move(supervisor);
      (void)programs->connect(start, why);
    };
  }
  const std::lock_guard lock(mutex_);
  Engine& engine = *engine_;
  // Round robin spreads the handshakes, which cost processor time, evenly over the threads.
  const std::size_t thread = next_thread_++ % engine.hosts.size();
  os::EventLoop& loop = engine.threads->loop(static_cast<int>(thread));
  loop.post([&engine, &loop, thread, stream = start.stream, options = link_options(start, target),
             target = std::move(target), late = options_.hosts_come_late, deadline = start.deadline,
             fan_out = fan_out_, by_program = std::move(by_program)]() mutable {
    Engine::Hosts& hosts = engine.hosts[thread];
    auto made = std::make_unique<SshHost>(
        loop, std::move(*stream), std::move(options), std::move(target),
        // The fan-out and the resolver are shared, and both are thread-safe.
        SshHost::Transport{
            &engine.resolver, fan_out, late,
            // A host asks for its removal from inside its own callback: the next turn removes it.
            [&loop, &hosts](SshHost* done) { loop.post([&hosts, done] { hosts.erase(done); }); },
            std::move(by_program)});
    SshHost* started = made.get();
    hosts[started] = std::move(made);
    started->begin(late ? deadline + kReportLater : deadline - kReportEarlier);
  });
}

SshTransport::~SshTransport() {
  configuration_.close();
  by_program_->close();
  if (!engine_) return;
  engine_->announcements.close();
  // The resolver calls into the loops from its own threads. It lives until the loops have stopped,
  // because a host may be using it right now.
  engine_->resolver.close();
  for (std::size_t i = 0; i < engine_->hosts.size(); ++i) {
    engine_->threads->loop(static_cast<int>(i)).post([hosts = &engine_->hosts[i]] {
      hosts->clear();
    });
  }
  // A thread is stuck: leave the engine to the end of the process.
  if (!engine_->threads->stop(kStopTimeout)) static_cast<void>(engine_.release());
}

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(SshTransportOptions options, StageObserver observer) {
  return std::make_unique<SshTransport>(std::move(options), std::move(observer));
}

#endif

namespace {

std::unique_ptr<Transport> create(const JobSpec& job, StageObserver observer) {
#if HORA_WITH_SSH
  return make_ssh_transport({job.ssh, job.fan_out, 0, job.hosts_come_late}, std::move(observer));
#else
  // The client reads the configuration itself.
  std::vector<std::string> command{"ssh", "-T"};
  for (std::string& word : ssh_arguments(job.ssh)) command.push_back(std::move(word));
  return make_command_transport(std::move(command), std::move(observer), job.fan_out);
#endif
}

constexpr TransportDescriptor kDescriptor{
    .name = "ssh",
    .how = "libssh in non-blocking mode: a few threads serve all hosts, one connection per host",
    .options = "-p -i --ssh-config-file --accept-new-host-keys --fan-out",
    .create = create};

}  // namespace

const TransportDescriptor* ssh_transport_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
