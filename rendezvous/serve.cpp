// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "rendezvous/base/text.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/process_end.h"
#include "rendezvous/os/threads.h"

namespace hora::rendezvous {

// A rendezvous inside a worker, for jobs that another launcher started: a loop on a thread of its
// own, because the process's own threads belong to the user's program.

Result<std::unique_ptr<HostedRendezvous>> HostedRendezvous::start(
    const std::vector<IpAddress>& addresses, std::string token) {
  std::vector<Endpoint> endpoints;
  for (const IpAddress& address : addresses) endpoints.push_back({address, 0});
  return start(std::move(endpoints), std::move(token));
}

Result<std::unique_ptr<HostedRendezvous>> HostedRendezvous::start(std::vector<Endpoint> endpoints,
                                                                  std::string token) {
  std::unique_ptr<HostedRendezvous> self(new HostedRendezvous);
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  self->loop_ = std::move(*loop);
  AccessPolicy access;
  access.token = std::move(token);
  self->service_ = std::make_unique<KvService>(std::move(access), KvLimits{});
  KvServerOptions options;
  options.addresses = std::move(endpoints);
  auto server = KvServer::start(*self->loop_, *self->service_, std::move(options));
  if (!server) return std::move(server).error();
  self->server_ = std::move(*server);
  auto thread = os::start_service_thread("hora-rendezvous", [loop = self->loop_.get()] {
    // A broken epoll shows as ranks that do not come, which the others report.
    static_cast<void>(loop->run());
  });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

HostedRendezvous::~HostedRendezvous() {
  if (!thread_.joinable()) return;
  // stop() is for the loop's own thread.
  loop_->post([loop = loop_.get()] { loop->stop(); });
  thread_.join();
}

// The program of `horarun rendezvous` and the starter of hora.run: one loop, ended by SIGINT,
// SIGTERM or the end of a given process.

namespace {

// SIGINT and SIGTERM as a file descriptor, for as long as it lives.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, &previous_);
    fd_ = os::Fd(::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndSignals() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int fd() const { return fd_.get(); }
  // A signal that was not taken would be delivered when the mask is restored.
  void take() {
    signalfd_siginfo info;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &info, sizeof info);
  }

 private:
  sigset_t set_;
  sigset_t previous_;
  os::Fd fd_;
};

void print_addresses(const std::vector<Endpoint>& addresses) {
  for (const Endpoint& address : addresses) {
    std::printf("rendezvous: listening on %s\n", format_endpoint(address).c_str());
  }
  std::fflush(stdout);
}

AccessPolicy this_machine() {
  return {.token = {}, .allow = {*parse_cidr("127.0.0.0/8"), *parse_cidr("::1")}};
}

}  // namespace

Status serve_rendezvous(ServeOptions options) {
  if (options.server.addresses.empty()) {
    options.server.addresses.push_back({*parse_ip_address("127.0.0.1"), 0});
  }
  if (options.access.token.empty() && options.access.allow.empty()) {
    // Without a token any client may read and write; that is safe only within a machine.
    options.access = this_machine();
  }
  // Each worker keeps a connection open while it waits.
  os::raise_file_limit();
  EndSignals signals;
  if (signals.fd() < 0) return errno_error(errno, "rendezvous: making a signalfd");
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error().with_context("rendezvous");
  HORA_TRY((*loop)->watch(signals.fd(), EPOLLIN, [&](std::uint32_t) {
    signals.take();
    (*loop)->stop();
  }));
  std::unique_ptr<os::ProcessEnd> starter;
  if (options.end_with) {
    auto watched = os::ProcessEnd::watch(**loop, *options.end_with, [&loop] { (*loop)->stop(); });
    if (!watched) return std::move(watched).error().with_context("rendezvous");
    starter = std::move(*watched);
  }
  KvService service(std::move(options.access), options.limits);
  service.begin_round(options.known_scopes);
  auto server = KvServer::start(**loop, service, std::move(options.server));
  if (!server) return std::move(server).error();
  // Only now: a reader of the address may connect at once.
  if (options.announce) {
    options.announce((*server)->addresses());
  } else {
    print_addresses((*server)->addresses());
  }
  return (*loop)->run();
}

Result<std::string> read_token_file(const std::string& path) {
  constexpr std::size_t kLongestToken = 4096;
  const std::string name = "the token file " + quote(path);
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "reading " + name);
  HORA_TRY(os::check_secret_file(file.get(), name));
  const auto line = os::read_line(file.get(), name, kLongestToken);
  if (!line) return line.error();
  const std::string token(trim(*line));
  if (token.empty()) {
    return make_error(ErrorCode::kUsage, name + " is empty");
  }
  // It travels in a header, where a blank would end it.
  if (token.find_first_of(" \t") != std::string::npos) {
    return make_error(ErrorCode::kUsage, name + " holds a blank inside the token");
  }
  return token;
}

}  // namespace hora::rendezvous
