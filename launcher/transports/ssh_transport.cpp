// ssh by libssh: a few threads, each with an event loop that serves many hosts; one connection per
// host.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/payload_store.h"
#include "launcher/transports/ssh_host.h"
#include "launcher/transports/transport.h"

namespace hora::launcher {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostThreads = 4;
// The supervisor has the same deadline; the transport knows more about what went wrong, so it
// speaks a little earlier.
constexpr std::chrono::milliseconds kSpeakEarlier{150};

class SshTransport : public Transport {
 public:
  SshTransport(SshTransportOptions options, StageObserver observer)
      : options_(std::move(options)),
        observer_(std::move(observer)),
        targets_(options_.ssh),
        fan_out_(options_.fan_out) {}
  ~SshTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;

 private:
  using Hosts = std::map<SshHost*, std::unique_ptr<SshHost>>;

  Status start_threads();

  SshTransportOptions options_;
  StageObserver observer_;
  SshTargets targets_;
  FanOut fan_out_;
  std::mutex mutex_;
  std::unique_ptr<IoThreads> threads_;
  std::vector<Hosts> hosts_;  // of each thread, and touched by it only
  std::size_t next_thread_ = 0;
  std::unique_ptr<NameResolver> resolver_;
  PayloadStore payloads_;
};

Status SshTransport::start_threads() {
  if (threads_) return Ok{};
  HORA_TRY(prepare_ssh_library());
  int count = options_.io_threads;
  if (count <= 0) {
    count = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  }
  auto threads = IoThreads::start(count);
  if (!threads) return std::move(threads).error();
  hosts_.resize(static_cast<std::size_t>(count));
  resolver_ = std::make_unique<NameResolver>();
  threads_ = *std::move(threads);
  return Ok{};
}

Result<os::Fd> SshTransport::start(const Host& host, int host_index, const AgentImage& image,
                                   Clock::time_point deadline) {
  auto target = targets_.target_of(host);
  if (!target) return std::move(target).error();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "making a socketpair for host " + host.name);
  }
  os::Fd ours(ends[0]);
  auto theirs = std::make_shared<os::Fd>(ends[1]);

  std::lock_guard lock(mutex_);
  HORA_TRY(start_threads());
  const std::size_t thread = next_thread_++ % hosts_.size();
  os::EventLoop& loop = threads_->loop(static_cast<int>(thread));
  AgentLinkOptions options;
  options.host = target->describe("");
  options.host_index = host_index;
  options.image = image;
  options.payload = payloads_.of(image.path);
  options.observer = observer_;
  options.lost_class = failure::kHostLost;
  options.shell_class = failure::kRemoteShell;
  options.shell_advice =
      "`ssh " + host.name + " /bin/sh -c true` must work without a terminal and without a question";
  loop.post([this, &loop, thread, theirs, options = std::move(options), target = *std::move(target),
             deadline]() mutable {
    Hosts& hosts = hosts_[thread];
    auto made = std::make_unique<SshHost>(
        loop, std::move(*theirs), std::move(options), std::move(target),
        SshHost::Shared{resolver_.get(), &fan_out_}, deadline - kSpeakEarlier,
        [&loop, &hosts](SshHost* done) { loop.post([&hosts, done] { hosts.erase(done); }); });
    SshHost* started = made.get();
    hosts[started] = std::move(made);
    started->begin();
  });
  return ours;
}

SshTransport::~SshTransport() {
  if (!threads_) return;
  // These two call into the loops from threads of their own. They live until the loops have stopped:
  // a host may just be asking them something.
  resolver_->close();
  payloads_.close();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    threads_->loop(static_cast<int>(i)).post([this, i] { hosts_[i].clear(); });
  }
  threads_->stop();
}

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(SshTransportOptions options, StageObserver observer) {
  return std::make_unique<SshTransport>(std::move(options), std::move(observer));
}

}  // namespace hora::launcher
