// SPDX-License-Identifier: Apache-2.0
// The states follow each other as the header lists them. Every event (socket, timer, link) ends in
// step(), which goes on from the current state as far as it can without waiting, and in
// update_watch(), which decides what to wait for.
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
#include "launcher/transports/known_hosts.h"
#include "launcher/transports/ssh_failures.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// One write of this size keeps a slow host from holding more memory than its turn needs.
constexpr std::size_t kWriteSize = 128 * 1024;
constexpr int kMaxRounds = 256;                // of one pump, before other hosts have their turn
constexpr Milliseconds kConnectLimit{10'000};  // without ConnectTimeout
constexpr Milliseconds kBannerLimit{10'000};   // from the connection to the end of the handshake
constexpr Milliseconds kAuthLimit{15'000};     // a server may be slow to look a user up
constexpr int kMostPenalties = 7;           // refusals in about 5 s; a penalty lasts 15 s or longer
constexpr Milliseconds kExitWait{3'000};    // between end of output and exit status
constexpr Milliseconds kCloseLimit{1'000};  // for the last bytes to leave

// The kernel detects a dead peer as well (in 15 + 4 * 5 s), for an agent that sends no heartbeats.
void keep_alive(int fd) {
  const int on = 1, idle_s = 15, interval_s = 5, probes = 4;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

SshHost::SshHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, SshTarget target,
                 Transport transport)
    : loop_(loop),
      link_(loop, std::move(local), std::move(options), *this),
      target_(std::move(target)),
      transport_(std::move(transport)),
      permit_(transport_.fan_out, loop) {}

void SshHost::begin(Clock::time_point deadline) {
  if (!link_.open()) return finish();
  if (!target_.problem.empty()) return fail(failure::kConnect, target_.problem);
  deadline_.set(deadline, [this] { on_deadline(); });
  queue();
}

void SshHost::queue() {
  state_ = State::kQueued;
  permit_.wait([this] { connect(); });
}

// --- connecting ----------------------------------------------------------------------------------

// A proxy command does its own name resolution, so its connection skips the resolver.
void SshHost::connect() {
  state_ = State::kConnecting;
  back_off_.count_attempt();
  // Again for each attempt: a key may have been added or loaded meanwhile. Before a connection is
  // made, since sshd counts those that end without a login.
  keys_ = {look_up_known_host(target_.host_keys, target_.port),
           plan_identities(target_.keys, target_.algorithms.public_keys)};
  const std::string why = why_program(target_, keys_.known, keys_.identities);
  if (!why.empty() && transport_.by_program) return fail_or_go_by_program({}, why);
  if (!target_.route.proxy.empty()) return connect_by_proxy();
  if (!absence_) link_.report(Stage::kResolve, target_.address);
  set_stage_limit(target_.route.connect_timeout ? Milliseconds(*target_.route.connect_timeout)
                                                : kConnectLimit);
  connector_ = std::make_unique<TcpConnector>(loop_, *transport_.resolver);
  connector_->start(
      target_.address, target_.port, target_.route.address_family,
      [this](const std::string& first) {
        if (!absence_) link_.report(Stage::kConnect, first);
      },
      [this](TcpConnector::Outcome outcome) { on_connected(std::move(outcome)); });
}

// The command's stdin and stdout are one socketpair: libssh takes a single descriptor.
void SshHost::connect_by_proxy() {
  link_.report(Stage::kConnect, "by " + target_.route.proxy.front());
  auto child = PipedChild::start(target_.route.proxy, true);
  if (!child) return fail(failure::kConnect, "the proxy command: " + child.error().message);
  proxy_ = *std::move(child);
  link_.set_host(
      target_.describe(target_.address + ":" + std::to_string(target_.port) + " by proxy"));
  open_client(std::move(proxy_.stdin_fd), "by proxy");
}

// Keeps the connector alive until the end of this function; it is the caller.
void SshHost::on_connected(TcpConnector::Outcome outcome) {
  const std::unique_ptr<TcpConnector> connector = std::move(connector_);
  if (!outcome.fd.valid()) {
    const std::string why = outcome.failed_class == failure::kResolve
                                ? "its name does not resolve yet"
                            : outcome.failed_class == failure::kRefused
                                ? "nothing listens on port " + std::to_string(target_.port) + " yet"
                                : outcome.problem;
    return fail_or_wait({std::string(outcome.failed_class), outcome.problem, ""}, why);
  }
  // Attempts without a connection do not count for a server that turns out to be busy.
  if (std::exchange(absence_, std::nullopt)) back_off_.reset();
  const std::string endpoint = format_endpoint(outcome.endpoint);
  link_.set_host(target_.describe(endpoint));
  keep_alive(outcome.fd.get());
  open_client(std::move(outcome.fd), endpoint);
}

// The sink runs inside attend(), on this thread.
void SshHost::open_client(os::Fd socket, const std::string& endpoint) {
  auto client = SshClient::create(target_, keys_, std::move(socket));
  if (!client) {
    return fail_or_go_by_program({std::string(failure::kSshProtocol), client.error().message, ""},
                                 client.error().message);
  }
  client_ = *std::move(client);
  client_->set_sink([this](std::string_view bytes, bool is_stderr) {
    if (is_stderr) {
      link_.on_remote_errors(bytes);
    } else {
      link_.on_remote_output(bytes);
    }
  });
  state_ = State::kHandshake;
  link_.report(Stage::kBanner, endpoint);
  // ConnectTimeout is for the banner and the key exchange, too.
  set_stage_limit(std::max<Milliseconds>(
      kBannerLimit, target_.route.connect_timeout.value_or(std::chrono::seconds(0))));
  step();
}

// Does everything that is possible now, in any state.
void SshHost::step() {
  // Each step may lead straight into the next one; each that has to wait returns false.
  if (state_ == State::kHandshake && !step_handshake()) return update_watch();
  if (state_ == State::kAuthenticate && !step_authenticate()) return update_watch();
  if (state_ == State::kExecute && !step_execute()) return update_watch();
  if (state_ == State::kRunning || state_ == State::kClosing) pump();
}

// libssh only sends its pending bytes after it has seen the socket writable, so one more call often
// gets them out without a turn of the loop.
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
  // The connection failed. Three cases: libssh's own failure while the server is still there; a
  // server that is too busy, which is worth a retry; or a refusal for good. A proxy's exit is never
  // "busy": its stderr says why it ended.
  const std::string proxy = proxy_words();
  if (client_->banner().empty() && !client_->server_hung_up()) {
    fail(failure::kInternal, "libssh: " + client_->error());
  } else if (proxy.empty() && means_busy(client_->banner())) {
    retry_when_busy();
  } else {
    // ssh knows more algorithms than libssh, post-quantum key exchanges above all.
    const std::string missing = missing_algorithms(client_->error());
    fail_or_go_by_program(
        handshake_refusal(client_->banner(), proxy, client_->error()),
        missing.empty() ? "" : "it has no " + missing + " in common with the server");
  }
  return false;
}

// Runs between key exchange and authentication, so no credential reaches a host that is not
// trusted.
bool SshHost::accept_host_key() {
  link_.report(Stage::kHostKey);
  using Trust = SshHostKey::Trust;
  const auto key = client_->host_key();
  // The ssh program may know the host by what libssh cannot check, whatever is to become of a key
  // that libssh does not know.
  const bool not_known = key.trust == Trust::kUnknown || key.trust == Trust::kChanged;
  const std::string why = not_known ? why_program_knows(target_, keys_.known) : "";
  auto refusal = host_key_refusal(key, target_, client_->error());
  if (refusal || (!why.empty() && transport_.by_program)) {
    fail_or_go_by_program(refusal.value_or(Failure{}), why);
    return false;
  }
  if (key.trust == Trust::kChanged) {
    os::log_warn("host " + target_.name, "its host key is not the one in " + key.line.file +
                                             "; the ssh config says StrictHostKeyChecking no");
  }
  if (key.trust == Trust::kUnknown) save_host_key(key);
  return true;
}

// With UserKnownHostsFile none there is no file for a new key. Like ssh, goes on if the key cannot
// be saved, on a read-only file system, say.
void SshHost::save_host_key(const SshHostKey& key) {
  const SshHostKeyPolicy& policy = target_.host_keys;
  if (policy.user_file_count == 0) return;
  const std::string& file = policy.known_hosts_files.front();
  const auto added = add_known_host(file, key.known_as, key.key, policy.hash_names);
  if (!added) {
    os::log_warn("host " + target_.name, "its host key cannot be saved: " + added.error().message);
    return;
  }
  link_.report(Stage::kHostKey, "added " + key.type + " " + key.fingerprint + " to " + file);
}

// Checked only now, so that a host which is down or has a changed key reports that problem first.
bool SshHost::step_authenticate() {
  if (!target_.keys.forbidden_by.empty()) {
    fail(failure::kSshAuth,
         "'" + target_.keys.forbidden_by +
             "' in the ssh config disables public keys, and horarun supports no other login method",
         "enable public keys for this host there");
    return false;
  }
  const auto result = until_sent(*client_, [this] { return client_->authenticate(); });
  if (result == SshClient::Step::kAgain) return false;
  if (result == SshClient::Step::kFailed) {
    const SshLogin login = client_->login();
    fail_or_go_by_program(authentication_refusal(login, keys_.identities, target_),
                          why_program_logs_in(target_, keys_.identities, login.methods));
    return false;
  }
  // From here on the deadline of the whole start applies: login scripts may take their time.
  stage_limit_.cancel();
  link_.report(Stage::kShell);  // not later: the agent's first words may come with the answer
  state_ = State::kExecute;
  return true;
}

// Some servers refuse the exec request, others drop the connection; both mean the same to the user.
bool SshHost::step_execute() {
  const auto line = link_.command_line();
  if (!line) {
    fail(failure::kInternal, line.error().message);
    return false;
  }
  const auto result = until_sent(*client_, [&] { return client_->execute(*line); });
  if (result == SshClient::Step::kAgain) return false;
  if (result == SshClient::Step::kFailed) {
    fail(failure::kRemoteShell,
         (client_->connected() ? "the server did not run a command: "
                               : "the connection ended before the server ran a command: ") +
             client_->error(),
         "let this account run commands there: look for ForceCommand in its sshd_config, and for "
         "command= before its key in authorized_keys");
    return false;
  }
  state_ = State::kRunning;
  return true;
}

// --- bytes ---------------------------------------------------------------------------------------

// Moves bytes from the link into the channel. Returns true when something moved.
bool SshHost::send_input() {
  if (state_ != State::kRunning) return false;
  // The link closes its input once only; the flag keeps a second EOF from the server.
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

// With no room left in the link nothing is read, so the window of the far side fills up:
// back-pressure. But libssh only sends while it may receive, too, and heartbeats must leave, so a
// little more is let in while bytes wait to be sent.
bool SshHost::may_take_in() const {
  return state_ == State::kClosing || link_.room() > 0 ||
         (client_->wants_write() && !link_.overfull());
}

// Alternates between reading and writing, so that neither direction starves the other. After
// kMaxRounds the rest waits for the loop's next turn: other hosts share the thread.
void SshHost::pump() {
  bool more = true;
  for (int round = 0; more && round < kMaxRounds; ++round) {
    more = may_take_in() && client_->attend();
    if (client_->exit().output_ended || !client_->connected()) break;
    more |= send_input();
  }
  // The start is over for the fan-out once the agent runs; the next host may begin.
  if (link_.agent_started()) permit_.leave();
  if (state_ == State::kClosing) {
    if (!client_->wants_write() || !client_->connected()) return finish();
  } else if (!client_->connected()) {
    return report_end();
  } else if (client_->exit().output_ended) {
    return settle_end();
  }
  // libssh may hold decrypted data that epoll cannot see, so "more" needs a turn of its own.
  if (more && !again_.is_set()) again_.set(Milliseconds(0), [this] { step(); });
  update_watch();
}

// The output has ended; the exit status follows, usually at once.
void SshHost::settle_end() {
  while (client_->connected() && !client_->exit().settled && client_->attend()) {
  }
  if (client_->exit().settled || !client_->connected()) return report_end();
  // Some servers send no exit status at all, so the wait for it is limited.
  if (!exit_timer_.is_set()) exit_timer_.set(kExitWait, [this] { report_end(); });
  update_watch();
}

// Hands the result to the link, which decides: an error, or another attempt with the same
// connection.
void SshHost::report_end() {
  exit_timer_.cancel();
  RemoteEnd end = client_->exit().end;
  if (!client_->exit().output_ended) {
    end.link_error = "the ssh connection broke: " + client_->error();
  }
  state_ = State::kOver;
  update_watch();
  link_.on_remote_end(end);  // may ask for another command
}

// Watches only for what is wanted now, and for nothing when that is nothing: epoll reports a broken
// connection again and again while a watch exists.
void SshHost::update_watch() {
  if (!client_) return;
  std::uint32_t events = 0;
  if (state_ != State::kOver) {
    if (state_ != State::kRunning || link_.room() > 0) events |= EPOLLIN;
    if (client_->wants_write() && (state_ != State::kRunning || may_take_in())) events |= EPOLLOUT;
  }
  if (events == 0) return watch_.stop();
  if (watch_.is_on()) return watch_.change(events);
  (void)watch_.start(client_->fd(), events, [this](std::uint32_t) {
    client_->acknowledge_now();
    step();
  });
}

// --- calls of the link ---------------------------------------------------------------------------

// The link has new bytes to send, or room again.
void SshHost::link_changed() {
  if (state_ == State::kRunning) step();
}

// The link asks for the command again on the same connection (to replace a bad agent, say).
void SshHost::link_restarts() {
  if (!client_ || !client_->connected()) {
    return fail(failure::kHostLost, "the ssh connection broke");
  }
  exit_timer_.cancel();
  input_closed_ = false;
  state_ = State::kExecute;
  step();
}

void SshHost::link_finished() {
  permit_.leave();
  if (state_ != State::kRunning) return finish();
  // The last bytes and the end of the agent's input leave; then the connection goes.
  state_ = State::kClosing;
  (void)client_->close_input();
  set_stage_limit(kCloseLimit);
  // The limit bounds a peer that does not read.
  step();
}

// The object may be destroyed soon after done() returns; nothing may follow that call.
void SshHost::finish() {
  state_ = State::kOver;
  for (Timer* timer : {&stage_limit_, &deadline_, &exit_timer_}) timer->cancel();
  close_connection();
  if (transport_.done) std::exchange(transport_.done, nullptr)(this);
}

// The watch must go before the descriptor: the loop would otherwise keep a number that is reused.
void SshHost::close_connection() {
  connector_.reset();
  watch_.stop();
  client_.reset();
  proxy_ = PipedChild();
}

// --- failures ------------------------------------------------------------------------------------

void SshHost::fail(std::string_view failure_class, const std::string& what,
                   const std::string& advice) {
  fail({std::string(failure_class), what, advice});
}

// The link passes the failure on to the supervisor.
void SshHost::fail(const Failure& failure) {
  state_ = State::kOver;
  stage_limit_.cancel();
  link_.fail(failure);
  close_connection();
  permit_.leave();
}

// `why`: what the ssh program can do and libssh cannot; empty: it would fail as well.
void SshHost::fail_or_go_by_program(const Failure& failure, const std::string& why) {
  if (why.empty() || !transport_.by_program) return fail(failure);
  close_connection();
  permit_.leave();
  transport_.by_program(link_.release(), why);
  finish();
}

// The last output of the proxy command. The pipe is non-blocking, and what was read earlier is
// kept.
std::string SshHost::proxy_words() {
  if (!proxy_.stderr_fd.valid()) return {};
  char bytes[2048];
  const ssize_t got = ::read(proxy_.stderr_fd.get(), bytes, sizeof bytes);
  if (got > 0) busy_words_ = std::string(trim({bytes, static_cast<std::size_t>(got)}));
  return busy_words_.empty() ? "" : quote(busy_words_, 600);
}

// Tries again after a pause, until the deadline.
Milliseconds SshHost::back_off() {
  close_connection();
  // A host that only waits must not hold a place that another one could use.
  permit_.leave();
  const Milliseconds pause = back_off_.next_pause();
  state_ = State::kBackOff;
  stage_limit_.set(pause, [this] { queue(); });
  return pause;
}

// The host cannot be reached: for good, or not yet.
void SshHost::fail_or_wait(Failure failure, const std::string& why) {
  if (!transport_.hosts_come_late) return fail(failure);
  absence_ = std::move(failure);
  link_.report(Stage::kAbsent, why);
  (void)back_off();
}

void SshHost::retry_when_busy() {
  // The banner may be lost: the server closes while ours is on its way.
  if (!client_->banner().empty()) busy_words_ = client_->banner();
  // A penalty does not pass in time: a start of many hosts must not wait for it.
  if (may_mean_penalty(busy_words_) && back_off_.attempts() >= kMostPenalties) {
    return fail_as_busy(back_off_.attempts());
  }
  const Milliseconds pause = back_off();
  link_.report(Stage::kBanner,
               "the server is busy; retrying in " + std::to_string(pause.count()) + " ms");
}

void SshHost::set_stage_limit(Milliseconds limit) {
  stage_limit_.set(limit, [this] { on_stage_limit(); });
}

// The limit of one stage is over.
void SshHost::on_stage_limit() {
  switch (state_) {
    case State::kConnecting:
      if (connector_ && connector_->resolving()) {
        connector_.reset();
        const Failure silence = name_server_timeout(target_.address);
        return fail_or_wait(silence, silence.message);
      } else {
        const std::string silent = connector_ ? connector_->addresses_tried() : "";
        connector_.reset();
        return fail_or_wait(connect_timeout(silent, stage_limit_.waited()),
                            "no answer from " + silent + " yet");
      }
    case State::kHandshake:
      return fail(client_->banner().empty()
                      ? banner_timeout(stage_limit_.waited())
                      : key_exchange_timeout(stage_limit_.waited(), target_.address));
    case State::kAuthenticate:
      return fail(login_timeout(stage_limit_.waited()));
    case State::kClosing:
      return finish();
    default:
      return;
  }
}

// The time for the whole start is over.
void SshHost::on_deadline() {
  // A running agent is past the start; its own timeouts apply.
  if (link_.agent_started() || link_.ended()) return;
  transport_.hosts_come_late = false;  // there is no time left for it
  if (absence_) return fail(*absence_);
  switch (state_) {
    case State::kQueued:
    case State::kBackOff:
      if (back_off_.attempts() > 0) return fail_as_busy(back_off_.attempts());
      return fail(queue_timeout());
    case State::kExecute:
    case State::kRunning:
      return fail(shell_timeout());
    case State::kConnecting:
    case State::kHandshake: {
      // Refusals of earlier attempts explain more than the one that the deadline cut off.
      const bool spoke = state_ == State::kHandshake && !client_->banner().empty();
      if (back_off_.attempts() > 1 && !spoke) return fail_as_busy(back_off_.attempts() - 1);
      return on_stage_limit();
    }
    default:
      return on_stage_limit();
  }
}

void SshHost::fail_as_busy(int refusals) {
  fail(busy_refusal(refusals, busy_words_, !target_.route.proxy.empty()));
}

}  // namespace hora::launcher
