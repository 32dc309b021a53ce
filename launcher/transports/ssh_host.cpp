#include "launcher/transports/ssh_host.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/ssh_refusals.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kWriteSize = 128 * 1024;
constexpr int kMaxRounds = 256;               // of one pump, before other hosts have their turn
constexpr milliseconds kBannerLimit{10'000};  // from the connection to the end of the handshake
constexpr milliseconds kAuthLimit{15'000};    // a server may be slow to look a user up
constexpr milliseconds kExitPatience{3'000};  // between end of output and exit status
constexpr milliseconds kCloseLimit{1'000};    // for the last bytes to leave
constexpr milliseconds kFirstBackOff{100};
constexpr milliseconds kLongestBackOff{2'000};

// A dead peer is noticed by the kernel too, for an agent that is told to be silent.
void keep_alive(int fd) {
  const int on = 1, idle_s = 15, interval_s = 5, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

unsigned seed() {
  const std::string bytes = os::random_bytes(4);
  unsigned value = 0;
  for (char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

}  // namespace

SshHost::SshHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, SshTarget target,
                 Shared shared, Clock::time_point deadline, Done done)
    : loop_(loop),
      link_(loop, std::move(local), std::move(options), *this),
      target_(std::move(target)),
      shared_(shared),
      deadline_(deadline),
      done_(std::move(done)),
      jitter_(seed()) {}

SshHost::~SshHost() {
  *alive_ = false;
  for (const auto timer : {deadline_timer_, stage_timer_, exit_timer_}) loop_.cancel(timer);
  close_connection();
  give_place_back();
}

void SshHost::begin() {
  if (!link_.open()) return finish();
  deadline_timer_ = loop_.call_at(deadline_, [this] { on_deadline(); });
  queue();
}

// For a place in the fan-out.
void SshHost::queue() {
  state_ = State::kQueued;
  shared_.fan_out->acquire([this, loop = &loop_, alive = alive_, fan_out = shared_.fan_out] {
    loop->post([this, alive, fan_out] {
      if (!*alive || state_ != State::kQueued) return fan_out->release();
      has_place_ = true;
      connect();
    });
  });
}

void SshHost::give_place_back() {
  if (std::exchange(has_place_, false)) shared_.fan_out->release();
}

// --- connecting ----------------------------------------------------------------------------------

void SshHost::connect() {
  state_ = State::kConnecting;
  ++attempts_;
  if (!target_.proxy.empty()) return connect_by_proxy();
  link_.report(Stage::kResolve, target_.address);
  set_stage_limit(target_.connect_timeout);
  connector_ = std::make_unique<TcpConnector>(loop_, *shared_.resolver);
  connector_->start(
      target_.address, target_.port, target_.address_family,
      {target_.bind_address, target_.bind_interface},
      [this](const std::string& first) { link_.report(Stage::kConnect, first); },
      [this](TcpConnector::Outcome outcome) { on_connected(std::move(outcome)); });
}

void SshHost::connect_by_proxy() {
  link_.report(Stage::kConnect, "by " + target_.proxy.front());
  auto child = PipedChild::start(target_.proxy, true);
  if (!child) return fail(failure::kConnect, "the proxy command: " + child.error().message);
  proxy_ = *std::move(child);
  endpoint_ = "by proxy";
  link_.set_host(
      target_.describe(target_.address + ":" + std::to_string(target_.port) + " by proxy"));
  open_client(std::move(proxy_.stdin_fd));
}

void SshHost::on_connected(TcpConnector::Outcome outcome) {
  const std::unique_ptr<TcpConnector> connector = std::move(connector_);
  if (!outcome.fd.valid()) return fail(outcome.failed_class, outcome.problem);
  endpoint_ = format_endpoint(outcome.endpoint);
  link_.set_host(target_.describe(endpoint_));
  keep_alive(outcome.fd.get());
  open_client(std::move(outcome.fd));
}

void SshHost::open_client(os::Fd socket) {
  auto client = SshClient::create(target_, std::move(socket));
  if (!client) return fail(failure::kInternal, client.error().message);
  client_ = *std::move(client);
  client_->set_sink([this](std::string_view bytes, bool is_stderr) {
    if (is_stderr) {
      link_.on_remote_errors(bytes);
    } else {
      link_.on_remote_output(bytes);
    }
  });
  state_ = State::kHandshake;
  link_.report(Stage::kBanner, endpoint_);
  set_stage_limit(kBannerLimit);
  step();
}

void SshHost::on_socket() {
  client_->acknowledge_now();
  step();
}

// Does what can be done now, whatever the state.
void SshHost::step() {
  // Each step may lead straight into the next one; each that has to wait returns false.
  if (state_ == State::kHandshake && !step_handshake()) return update_watch();
  if (state_ == State::kAuthenticate && !step_authenticate()) return update_watch();
  if (state_ == State::kExecute && !step_execute()) return update_watch();
  if (state_ == State::kRunning || state_ == State::kClosing) pump();
}

// libssh sends what it has only after it has seen the socket writable, so one more call often
// gets the bytes out without a turn of the loop.
template <typename Call>
SshClient::Step until_sent(const SshClient& client, Call call) {
  auto step = call();
  for (int i = 0; i < 2 && step == SshClient::Step::kAgain && client.wants_write(); ++i) {
    step = call();
  }
  return step;
}

bool SshHost::step_handshake() {
  const auto result = until_sent(*client_, [this] { return client_->handshake(); });
  if (result == SshClient::Step::kAgain) return false;
  if (result == SshClient::Step::kDone) {
    if (!accept_host_key()) return false;
    link_.report(Stage::kAuthenticate, target_.user);
    state_ = State::kAuthenticate;
    set_stage_limit(kAuthLimit);
    return true;
  }
  const std::string proxy = proxy_words();
  if (client_->banner().empty() && !client_->server_hung_up()) {
    fail(failure::kInternal, "libssh: " + client_->error());
  } else if (proxy.empty() && means_busy(client_->banner())) {
    retry_when_busy();
  } else {
    fail(handshake_refusal(client_->banner(), proxy, client_->error()));
  }
  return false;
}

bool SshHost::accept_host_key() {
  link_.report(Stage::kHostKey);
  const auto key = client_->host_key();
  if (auto refusal = host_key_refusal(key, target_, client_->error())) {
    fail(*std::move(refusal));
    return false;
  }
  // UserKnownHostsFile none: nowhere to keep a new key.
  if (key.verdict == SshClient::HostKey::Verdict::kKnown || target_.user_known_hosts_count == 0) {
    return true;
  }
  const std::string& file = target_.known_hosts_files.front();
  const auto added = add_known_host(file, key.entry);
  if (!added) {
    fail(failure::kHostKeyUnknown, "its host key cannot be saved: " + added.error().message);
    return false;
  }
  link_.report(Stage::kHostKey, "added " + key.type + " " + key.fingerprint + " to " + file);
  return true;
}

bool SshHost::step_authenticate() {
  if (!target_.keys_forbidden_by.empty()) {
    fail(failure::kSshAuth,
         "'" + target_.keys_forbidden_by +
             "' in the ssh config disables public keys, and horarun supports no other login method",
         "enable public keys for this host there, or use the system's ssh: --transport command "
         "--rsh 'ssh -q'");
    return false;
  }
  const auto result = until_sent(*client_, [this] { return client_->authenticate(); });
  if (result == SshClient::Step::kAgain) return false;
  if (result == SshClient::Step::kFailed) {
    const bool connected = client_->connected();
    fail(authentication_refusal(client_->auth_tried(), connected ? client_->auth_methods() : "",
                                target_, connected ? "" : client_->error()));
    return false;
  }
  loop_.cancel(stage_timer_);
  stage_timer_ = 0;
  auto line = link_.command_line();
  if (!line) {
    fail(failure::kInternal, line.error().message);
    return false;
  }
  command_ = *std::move(line);
  link_.report(Stage::kShell);  // not later: the agent's first words may come with the answer
  state_ = State::kExecute;
  return true;
}

bool SshHost::step_execute() {
  const auto result = until_sent(*client_, [this] { return client_->execute(command_); });
  if (result == SshClient::Step::kAgain) return false;
  if (result == SshClient::Step::kFailed) {
    fail(failure::kRemoteShell,
         (client_->connected() ? "the server did not run a command: "
                               : "the connection ended before the server ran a command: ") +
             client_->error(),
         "the account may be restricted (ForceCommand, a restricted key)");
    return false;
  }
  state_ = State::kRunning;
  return true;
}

// --- bytes ---------------------------------------------------------------------------------------

// Moves what the link has for the channel. True when something moved.
bool SshHost::send_input() {
  if (state_ != State::kRunning) return false;
  const auto bytes = link_.outgoing();
  if (bytes.empty()) {
    if (link_.wants_end_of_input() && !std::exchange(input_closed_, true)) {
      (void)client_->close_input();
      return true;
    }
    return false;
  }
  const auto wrote = client_->write_input(bytes.substr(0, kWriteSize));
  if (!wrote || *wrote == 0) return false;
  link_.sent(*wrote);
  return true;
}

// Without room nothing is taken in, and the far side's windows fill up: back-pressure. But libssh
// only sends when it may receive too, and heartbeats must leave: a little more is let in for them.
bool SshHost::may_take_in() const {
  return state_ == State::kClosing || link_.room() > 0 ||
         (client_->wants_write() && !link_.overfull());
}

void SshHost::pump() {
  bool more = true;
  for (int round = 0; more && round < kMaxRounds; ++round) {
    more = may_take_in() && client_->attend();
    if (client_->exit().output_ended || !client_->connected()) break;
    more |= send_input();
  }
  if (link_.agent_started()) give_place_back();
  if (state_ == State::kClosing) {
    if (!client_->wants_write() || !client_->connected()) return finish();
  } else if (!client_->connected()) {
    return report_end();
  } else if (client_->exit().output_ended) {
    return settle_end();
  }
  if (more && !std::exchange(again_posted_, true)) {
    loop_.post([this, alive = alive_] {
      if (!*alive) return;
      again_posted_ = false;
      step();
    });
  }
  update_watch();
}

// The output has ended; the exit status comes behind it, as a rule at once.
void SshHost::settle_end() {
  while (client_->connected() && !client_->exit().settled && client_->attend()) {
  }
  if (client_->exit().settled || !client_->connected()) return report_end();
  if (exit_timer_ == 0) {
    exit_timer_ = loop_.call_after(kExitPatience, [this] {
      exit_timer_ = 0;
      report_end();
    });
  }
  update_watch();
}

void SshHost::report_end() {
  loop_.cancel(exit_timer_);
  exit_timer_ = 0;
  const auto exit = client_->exit();
  RemoteEnd end;
  end.exit_status = exit.status;
  end.signal = exit.signal;
  if (!exit.output_ended) end.link_error = "the ssh connection broke: " + client_->error();
  state_ = State::kOver;
  update_watch();
  link_.on_remote_end(end);  // may ask for another command
}

// Watches for what is wanted now, and not at all when that is nothing: a broken connection would
// be reported again and again.
void SshHost::update_watch() {
  if (!client_) return;
  std::uint32_t events = 0;
  if (state_ != State::kOver) {
    if (state_ != State::kRunning || link_.room() > 0) events |= EPOLLIN;
    if (client_->wants_write() && (state_ != State::kRunning || may_take_in())) events |= EPOLLOUT;
  }
  if (events == watched_events_) return;
  const int fd = client_->fd();
  if (events == 0) {
    loop_.unwatch(fd);
  } else if (watched_events_ == 0) {
    (void)loop_.watch(fd, events, [this](std::uint32_t) { on_socket(); });
  } else {
    (void)loop_.change(fd, events);
  }
  watched_events_ = events;
}

// --- what the link says --------------------------------------------------------------------------

void SshHost::link_changed() {
  if (state_ == State::kRunning) step();
}

void SshHost::link_restarts() {
  if (!client_ || !client_->connected()) {
    return fail(failure::kHostLost, "the ssh connection broke");
  }
  auto line = link_.command_line();
  if (!line) return fail(failure::kInternal, line.error().message);
  command_ = *std::move(line);
  loop_.cancel(exit_timer_);
  exit_timer_ = 0;
  input_closed_ = false;
  state_ = State::kExecute;
  step();
}

void SshHost::link_finished() {
  give_place_back();
  if (state_ != State::kRunning) return finish();
  // The last bytes and the end of the agent's input leave; then the connection goes.
  state_ = State::kClosing;
  (void)client_->close_input();
  set_stage_limit(kCloseLimit);
  step();
}

void SshHost::finish() {
  state_ = State::kOver;
  for (auto* timer : {&deadline_timer_, &stage_timer_, &exit_timer_}) {
    loop_.cancel(std::exchange(*timer, 0));
  }
  close_connection();
  if (done_) std::exchange(done_, nullptr)(this);
}

void SshHost::close_connection() {
  connector_.reset();
  if (std::exchange(watched_events_, 0u) != 0) loop_.unwatch(client_->fd());
  client_.reset();
  proxy_ = PipedChild();
}

// --- failures ------------------------------------------------------------------------------------

void SshHost::fail(std::string_view failure_class, const std::string& what,
                   const std::string& advice) {
  fail({std::string(failure_class), what, advice});
}

void SshHost::fail(Failure failure) {
  state_ = State::kOver;
  loop_.cancel(std::exchange(stage_timer_, 0));
  failure.message = link_.host() + ": " + failure.message;
  link_.fail(std::move(failure));
  close_connection();
  give_place_back();
}

std::string SshHost::proxy_words() {
  if (!proxy_.stderr_fd.valid()) return {};
  char bytes[2048];
  const ssize_t got = ::read(proxy_.stderr_fd.get(), bytes, sizeof bytes);
  if (got > 0) busy_words_ = std::string(trim({bytes, static_cast<std::size_t>(got)}));
  return busy_words_.empty() ? "" : quote(busy_words_, 600);
}

// Another try after a pause that grows, and differs from host to host, until time is up.
void SshHost::retry_when_busy() {
  busy_words_ = client_->banner();
  close_connection();
  give_place_back();
  loop_.cancel(std::exchange(stage_timer_, 0));
  const auto longest = std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(attempts_ - 1, 5)));
  const milliseconds pause =
      longest / 2 + milliseconds(jitter_() % static_cast<unsigned>(longest.count()));
  state_ = State::kBackOff;
  link_.report(Stage::kBanner,
               "the server is busy; retrying in " + std::to_string(pause.count()) + " ms");
  stage_timer_ = loop_.call_after(pause, [this] {
    stage_timer_ = 0;
    queue();
  });
}

void SshHost::set_stage_limit(milliseconds limit) {
  loop_.cancel(stage_timer_);
  stage_began_ = Clock::now();
  stage_timer_ = loop_.call_after(limit, [this] {
    stage_timer_ = 0;
    on_stage_limit();
  });
}

std::string SshHost::waited() const {
  const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - stage_began_).count();
  return ms < 10'000 ? std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s"
                     : std::to_string((ms + 500) / 1000) + " s";
}

void SshHost::on_stage_limit() {
  switch (state_) {
    case State::kConnecting:
      if (connector_ && connector_->resolving()) {
        connector_.reset();
        return fail(failure::kResolve, "the name server does not answer for " + target_.address);
      } else {
        const std::string silent = connector_ ? connector_->addresses_tried() : "";
        connector_.reset();
        return fail(failure::kConnectTimeout, "no answer from " + silent + " within " + waited(),
                    "check that the host is up and that no firewall drops the packets");
      }
    case State::kHandshake: {
      const bool silent = client_->banner().empty();
      return fail(
          failure::kConnectTimeout,
          silent ? "it accepted the connection but sent no SSH banner within " + waited()
                 : "the key exchange did not finish within " + waited(),
          silent
              ? "the host or its sshd hangs, or handles too many logins at once (load, MaxStartups)"
              : "");
    }
    case State::kAuthenticate:
      return fail(failure::kConnectTimeout, "no answer to the authentication within " + waited());
    case State::kClosing:
      return finish();
    default:
      return;
  }
}

// The time for the start as a whole is up.
void SshHost::on_deadline() {
  deadline_timer_ = 0;
  if (link_.agent_started() || link_.ended()) return;
  switch (state_) {
    case State::kQueued:
    case State::kBackOff:
      if (attempts_ > 0 && !target_.proxy.empty() && busy_words_.empty()) {
        return fail(
            failure::kConnect,
            "the proxy command ended " + std::to_string(attempts_) + " times without output",
            "check that the ProxyCommand (ProxyJump) works by hand; the sshd behind it may be too "
            "busy (MaxStartups)");
      }
      if (attempts_ > 0) {
        return fail(failure::kSshBusy,
                    "the server was too busy " + std::to_string(attempts_) + " times" +
                        (busy_words_.empty() ? ": it closed the connection at once"
                                             : ": it said " + quote(busy_words_)),
                    "raise MaxStartups in its sshd_config, or lower --fan-out");
      }
      return fail(failure::kStartTimeout, "timed out in the --fan-out queue",
                  "raise --start-timeout or --fan-out");
    case State::kExecute:
    case State::kRunning:
      return fail(failure::kShellTimeout, "the remote shell did not start the agent in time",
                  "a login script there may wait for something or ask a question");
    default:
      return on_stage_limit();
  }
}

}  // namespace hora::launcher
