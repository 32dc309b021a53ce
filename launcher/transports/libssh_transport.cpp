// SPDX-License-Identifier: Apache-2.0
// ssh by libssh: a few threads, each with an event loop that serves many hosts; one connection per
// host. A host stays on its thread, so SshHost needs no locks. start() only hands out a socketpair
// and posts the work.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/libssh.h"
#include "launcher/transports/payload_store.h"
#include "launcher/transports/ssh_host.h"
#include "launcher/transports/ssh_targets.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr int kMostThreads = 4;
// The supervisor has the same deadline. The transport knows more about what went wrong, so it
// reports a little earlier.
constexpr std::chrono::milliseconds kSpeakEarlier{150};
// Of hosts that come late the supervisor knows as much, and it names all that are not there.
constexpr std::chrono::milliseconds kSpeakLater{1'000};
// libssh may wait for a key on a dead file system, or for an ssh-agent that asks its user. A job
// that is over does not wait for it.
constexpr std::chrono::milliseconds kStopPatience{1'000};

// Forwards stages to the supervisor until close(). The lock is held during the call, so no call is
// under way once close() has returned.
class Announcements {
 public:
  explicit Announcements(StageObserver observer) : observer_(std::move(observer)) {}

  void tell(int host_index, Stage stage, std::string_view detail) {
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

// Everything that the threads use. If a thread is stuck in libssh when the job ends, the destructor
// leaks this object on purpose, because that thread may still touch it.
struct Engine {
  using Hosts = std::map<SshHost*, std::unique_ptr<SshHost>>;

  Engine(StageObserver observer, int most_at_a_time)
      : announcements(std::move(observer)), fan_out(most_at_a_time) {}

  Announcements announcements;
  FanOut fan_out;
  NameResolver resolver;
  PayloadStore payloads;
  std::vector<Hosts> hosts;  // of each thread, and touched by it only
  std::unique_ptr<IoThreads> threads;
};

class SshTransport : public Transport {
 public:
  SshTransport(SshTransportOptions options, StageObserver observer)
      : options_(std::move(options)), observer_(std::move(observer)), targets_(options_.ssh) {}
  ~SshTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;

 private:
  Status start_engine();
  void tell_unfollowed(const SshTarget& target);

  SshTransportOptions options_;
  StageObserver observer_;
  SshTargets targets_;
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::size_t next_thread_ = 0;
  std::set<std::string> told_;  // of the ssh config's keywords that are not followed
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
  engine_ = std::make_unique<Engine>(observer_, options_.fan_out);
  engine_->hosts.resize(static_cast<std::size_t>(count));
  engine_->threads = *std::move(threads);
  return Ok{};
}

// Warns about each keyword once, however many hosts it applies to.
void SshTransport::tell_unfollowed(const SshTarget& target) {
  for (const UnfollowedKeyword& each : unfollowed_keywords()) {
    const std::string name(each.name);
    const auto& noted = target.not_followed;
    if (std::find(noted.begin(), noted.end(), name) == noted.end()) continue;
    if (!told_.insert(name).second) continue;
    os::log_warn("ssh config", name + " (for " + target.name +
                                   ") is not followed: " + std::string(each.meaning) +
                                   "; --transport command --rsh 'ssh -q' follows it");
  }
}

Result<os::Fd> SshTransport::start(const Host& host, int host_index, const AgentImage& image,
                                   Clock::time_point deadline) {
  auto target = targets_.target_of(host);
  if (!target) return std::move(target).error();
  auto pair = make_supervisor_pair(host.name);
  if (!pair) return std::move(pair).error();

  std::lock_guard lock(mutex_);
  HORA_TRY(start_engine());
  tell_unfollowed(*target);
  Engine& engine = *engine_;
  // Round robin spreads the handshakes, which cost processor time, evenly over the threads.
  const std::size_t thread = next_thread_++ % engine.hosts.size();
  os::EventLoop& loop = engine.threads->loop(static_cast<int>(thread));
  AgentLinkOptions options;
  options.host = target->describe("");
  options.host_index = host_index;
  options.image = image;
  options.payloads = engine.payloads.of(image);
  options.observer = [&engine](int index, Stage stage, std::string_view detail) {
    engine.announcements.tell(index, stage, detail);
  };
  options.lost_class = failure::kHostLost;
  options.shell_class = failure::kRemoteShell;
  options.shell_advice =
      "`ssh " + host.name + " /bin/sh -c true` must work without a terminal and without a question";
  loop.post([&engine, &loop, thread, theirs = pair->transport, options = std::move(options),
             target = *std::move(target), late = options_.hosts_come_late, deadline]() mutable {
    Engine::Hosts& hosts = engine.hosts[thread];
    auto made = std::make_unique<SshHost>(
        loop, std::move(*theirs), std::move(options), std::move(target),
        // The fan-out and the resolver are shared, and both are thread-safe.
        SshHost::Shared{&engine.resolver, &engine.fan_out, late},
        // A host asks for its removal from inside its own callback, so the removal takes a turn of
        // its own.
        [&loop, &hosts](SshHost* done) { loop.post([&hosts, done] { hosts.erase(done); }); });
    SshHost* started = made.get();
    hosts[started] = std::move(made);
    started->begin(late ? deadline + kSpeakLater : deadline - kSpeakEarlier);
  });
  return std::move(pair->supervisor);
}

SshTransport::~SshTransport() {
  if (!engine_) return;
  engine_->announcements.close();
  // Resolver and payloads call into the loops from their own threads. They live until the loops
  // have stopped, because a host may be using them right now.
  engine_->resolver.close();
  engine_->payloads.close();
  for (std::size_t i = 0; i < engine_->hosts.size(); ++i) {
    engine_->threads->loop(static_cast<int>(i)).post([hosts = &engine_->hosts[i]] {
      hosts->clear();
    });
  }
  // A thread is stuck: leave the engine to the end of the process.
  if (!engine_->threads->stop(kStopPatience)) static_cast<void>(engine_.release());
}

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(SshTransportOptions options, StageObserver observer) {
  return std::make_unique<SshTransport>(std::move(options), std::move(observer));
}

}  // namespace hora::launcher
