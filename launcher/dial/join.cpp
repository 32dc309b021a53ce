// SPDX-License-Identifier: Apache-2.0
// The machine's end: a loop between the connection and one child, the command that the launcher
// wants to run here. It is the start script of every transport, and then the agent, whose own life
// ends with its streams.
#include "launcher/dial/join.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/dial/dial_stream.h"
#include "launcher/process/piped_child.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/transports/bootstrap.h"
#include "rendezvous/base/little_endian.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/threads.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kWindow = 256 * 1024;  // queued in either direction
constexpr std::chrono::milliseconds kOneAddress{5'000};
// For an agent to end its ranks by itself, a long --grace included, before it is killed.
constexpr std::chrono::seconds kEndTimeout{60};
constexpr std::chrono::seconds kExitWait{3};  // from the end of the output to the exit
// From the end of the command to the launcher's last message.
constexpr std::chrono::seconds kLastWordTimeout{10};

// All addresses in turn; the error is that of the last one, with all that were tried.
Result<std::unique_ptr<net::Stream>> dial(const JoinOptions& options, std::string& reached) {
  const auto give_up = Clock::now() + options.timeout;
  std::string problems;
  std::string impostor;
  for (const JoinUrl::Address& each : options.url.addresses) {
    const std::string name = format_join_address(each);
    const auto deadline = std::min(give_up, Clock::now() + kOneAddress);
    auto fd = net::connect_host(each.host, each.port, deadline);
    if (!fd) {
      problems += (problems.empty() ? "" : "; ") + name + ": " + fd.error().message;
      continue;
    }
    keep_alive(fd->get());
    auto stream = tls::pinned(options.url.fingerprint)(*std::move(fd), deadline);
    if (stream) {
      reached = name;
      return stream;
    }
    // The certificate decides: another server must not get the token. Another address may lead to
    // the right one.
    if (stream.error().code == ErrorCode::kDenied) impostor = name;
    problems += (problems.empty() ? "" : "; ") + name + ": " + stream.error().message;
  }
  if (!impostor.empty()) {
    return make_error(ErrorCode::kDenied,
                      impostor + (options.launcher_wait.count() > 0
                                      ? " is not the launcher of this job: its token or version "
                                        "is another one, or another process answers there"
                                      : " is not the launcher that printed this line: its "
                                        "certificate is another one (the line is of an earlier "
                                        "job, or another process answers there)"));
  }
  return make_error(ErrorCode::kUnavailable,
                    "no launcher answers: " + problems +
                        "; the job may have ended, or have all of its hosts already");
}

class Joiner {
 public:
  Joiner(os::EventLoop& loop, std::unique_ptr<net::Stream> stream, const JoinOptions& options,
         std::string launcher)
      : loop_(loop),
        stream_(loop, std::move(stream), kLargestDialFrame,
                DialStream::Handlers{[this](const DialFrame& frame) { on_frame(frame); },
                                     [this](const std::string& why) { on_lost(why); },
                                     [this] { pump_output(); }}),
        options_(options),
        launcher_(std::move(launcher)) {}
  ~Joiner() { drop_command(); }

  Status begin();
  void on_signal(int signal);
  Result<int> outcome() const {
    if (error_) return *error_;
    return exit_code_;
  }

 private:
  // A watched descriptor of the command; paused, it is not watched at all, since epoll would report
  // a hang-up again and again.
  struct Watch {
    int fd = -1;
    bool on = false;
  };

  void on_frame(const DialFrame& frame);
  void on_lost(const std::string& why);
  void run(std::uint32_t number, const std::vector<std::string>& words, std::string_view line);
  void end_command();
  void drop_command();
  void pump_output();
  void write_input();
  bool forward(Watch& watch, os::Fd& fd, DialFrameType type);
  void on_exit();
  void say(const std::string& text) const;
  void report_end();
  void leave(int exit_code);
  void fail(std::string why);
  void watch(Watch& watch, int fd, std::uint32_t events, os::EventLoop::IoHandler handler);
  void unwatch(Watch& watch);
  std::string number_text() const;

  os::EventLoop& loop_;
  DialStream stream_;
  const JoinOptions& options_;
  std::string launcher_;  // its address
  bool accepted_ = false;
  bool over_ = false;  // the launcher has said so, or is gone
  int exit_code_ = kExitLauncher;
  std::optional<Error> error_;

  PipedChild child_;
  std::uint32_t number_ = 0;
  bool running_ = false;  // there is a command whose end was not reported
  bool exited_ = false;
  bool input_ends_ = false;  // comes after input_
  ByteQueue input_;
  Watch in_, out_, err_, end_;
  os::EventLoop::TimerId timer_ = 0;
  int signal_ = 0;  // that asked us to leave
};

void Joiner::say(const std::string& text) const {
  if (!options_.silent) std::fprintf(stderr, "horarun: %s\n", text.c_str());
}

// The token follows a handshake that has proved the launcher's identity.
Status Joiner::begin() {
  HORA_TRY(stream_.open());
  stream_.send(DialFrameType::kJoin, encode(join_request(options_)));
  timer_ = loop_.call_after(options_.timeout,
                            [this] { fail("the launcher at " + launcher_ + " did not answer"); });
  return Ok{};
}

// A launcher with the right certificate may run anything here: that is what joining means. Frames
// before it has let us in would be a mistake of its own.
void Joiner::on_frame(const DialFrame& frame) {
  std::string_view rest = frame.payload;
  if (frame.type == DialFrameType::kRefused) {
    return fail("the launcher at " + launcher_ +
                " does not let this machine in: " + visible_line(rest));
  }
  if (frame.type == DialFrameType::kAccepted) {
    loop_.cancel(timer_);
    timer_ = 0;
    accepted_ = true;
    return say("joined the job at " + launcher_ + " as " + visible_line(rest) + " with " +
               counted(options_.slots, "slot"));
  }
  const auto number = read_u32(rest);
  if (!number || !accepted_) return fail("the launcher at " + launcher_ + " broke the protocol");
  switch (frame.type) {
    case DialFrameType::kRun:
      return run(*number, {}, rest);
    case DialFrameType::kStart: {
      const auto words = decode_words(rest);
      if (!words) return fail("the launcher at " + launcher_ + " broke the protocol");
      return run(*number, *words, rest);
    }
    case DialFrameType::kOver:
      over_ = true;
      say("the job has ended with exit code " + std::to_string(*number));
      // The launcher reports the job's own end to its user.
      if (signal_ == 0) {
        exit_code_ = options_.silent ? int{kExitOk} : static_cast<int>(*number & 0xff);
      }
      stream_.close();
      return running_ ? end_command() : leave(exit_code_);
    default:
      break;
  }
  if (*number != number_ || !running_) return;  // it was for an earlier command
  if (frame.type == DialFrameType::kInput) {
    input_.append(rest);
    write_input();
  } else if (frame.type == DialFrameType::kInputEnd) {
    input_ends_ = true;
    write_input();
  } else if (frame.type == DialFrameType::kStop) {
    end_command();
  }
}

// What runs here is not killed: an agent whose stream ends gives its ranks their grace first.
void Joiner::on_lost(const std::string& why) {
  over_ = true;
  if (!accepted_) return fail("the launcher at " + launcher_ + " hung up: " + why);
  say("error: the connection to the launcher at " + launcher_ + " was lost: " + why +
      (running_ ? "; ending what runs here" : ""));
  return running_ ? end_command() : leave(kExitLauncher);
}

// The command has a process group of its own: a Ctrl-C at this terminal reaches us alone.
void Joiner::on_signal(int signal) {
  if (!ends_job(signal)) return;
  const bool again = std::exchange(signal_, signal) != 0;
  if (!running_ || again) return leave(exit_code_of_signal(signal));
  // The agent informs the launcher, and ends its ranks.
  say("ending what runs here; once more to kill it");
  child_.ask_to_end(signal == SIGINT || signal == SIGHUP ? signal : SIGTERM);
}

// --- the command ---------------------------------------------------------------------------------

// As `uname -m` says; empty: the kernel does not, or in no word for a shell.
std::string machine() {
  struct utsname names {};
  if (::uname(&names) != 0) return "";
  std::string machine(static_cast<const char*>(names.machine));
  const bool is_word =
      !machine.empty() &&
      machine.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  return is_word ? machine : "";
}

// By the rules of the start script, which has checked the folder when it started this program.
bool is_usable(const std::string& agent) {
  struct stat info {};
  return ::stat(agent.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
         info.st_uid == ::geteuid() && ::access(agent.c_str(), X_OK) == 0;
}

// Nothing: it is not there, or does not start; the script that is tried next says why.
std::optional<PipedChild> start_cached(const std::string& cache,
                                       const std::vector<std::string>& words) {
  const auto agent = cached_agent(words, machine());
  if (!agent || cache.empty() || !is_usable(cache + "/" + agent->name)) return std::nullopt;
  std::vector<std::string> argv{cache + "/" + agent->name, "agent", "--cache", cache};
  argv.insert(argv.end(), agent->arguments.begin(), agent->arguments.end());
  auto child = PipedChild::start(argv);
  return child ? std::optional(*std::move(child)) : std::nullopt;
}

// A second command replaces the first, which the launcher has given up. The script would have to
// start a program to learn which machine this is.
void Joiner::run(std::uint32_t number, const std::vector<std::string>& words,
                 std::string_view line) {
  drop_command();
  number_ = number;
  running_ = true;
  auto cached = start_cached(options_.cache, words);
  auto child =
      cached ? Result<PipedChild>(*std::move(cached))
             : PipedChild::start({"/bin/sh", "-c", "_m=" + machine() + "; " + std::string(line)});
  if (!child) {
    stream_.send(DialFrameType::kErrors, number_text(), child.error().message);
    exited_ = true;
    return report_end();
  }
  child_ = *std::move(child);
  if (child_.ended_fd() >= 0) {
    watch(end_, child_.ended_fd(), EPOLLIN, [this](std::uint32_t) { on_exit(); });
  }
  pump_output();
}

// By force. PipedChild kills the group; the agent's shim ends what is in others.
void Joiner::drop_command() {
  loop_.cancel(timer_);
  timer_ = 0;
  for (Watch* each : {&in_, &out_, &err_, &end_}) unwatch(*each);
  child_ = PipedChild();
  running_ = exited_ = input_ends_ = false;
  input_.clear();
}

// End of input is what an agent takes for the launcher's end; a killed one leaves that to its shim.
void Joiner::end_command() {
  unwatch(in_);
  child_.stdin_fd.reset();
  input_.clear();
  loop_.cancel(timer_);
  timer_ = loop_.call_after(kEndTimeout, [this] {
    timer_ = 0;
    drop_command();
    if (over_) leave(exit_code_);
  });
}

std::string Joiner::number_text() const {
  std::string text;
  append_u32(text, number_);
  return text;
}

// While the command does not read, neither do we: the launcher, and so its user's pipe, waits.
void Joiner::write_input() {
  while (child_.stdin_fd.valid() && !input_.empty()) {
    const auto bytes = input_.front();
    const ssize_t wrote = ::write(child_.stdin_fd.get(), bytes.data(), bytes.size());
    if (wrote > 0) {
      input_.pop(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EINTR) {
      continue;
    } else if (wrote < 0 && errno == EAGAIN) {
      break;
    } else {  // it reads no more: its exit will say why
      child_.stdin_fd.reset();
    }
  }
  if (!child_.stdin_fd.valid()) input_.clear();
  stream_.listen(input_.size() < kWindow);
  if (!input_.empty()) {
    watch(in_, child_.stdin_fd.get(), EPOLLOUT, [this](std::uint32_t) { write_input(); });
  } else {
    unwatch(in_);
    if (input_ends_) child_.stdin_fd.reset();
  }
}

// False: this stream has ended.
bool Joiner::forward(Watch& watched, os::Fd& fd, DialFrameType type) {
  const auto buffer = os::thread_buffer<Joiner, kDialPiece>();
  while (fd.valid() && (stream_.waiting() < kWindow || over_)) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got > 0) {
      stream_.send(type, number_text(), {buffer.data(), static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN && !exited_) {
      watch(watched, fd.get(), EPOLLIN, [this](std::uint32_t) { pump_output(); });
      return true;
    } else {  // or a remaining helper keeps the pipe open
      unwatch(watched);
      fd.reset();
    }
  }
  if (fd.valid()) unwatch(watched);
  return fd.valid();
}

// Errors first: when the command has ended, they are what explains it.
void Joiner::pump_output() {
  if (!running_) return;
  const bool errors = forward(err_, child_.stderr_fd, DialFrameType::kErrors);
  const bool output = forward(out_, child_.stdout_fd, DialFrameType::kOutput);
  if (errors || output || !running_) return;
  if (exited_ || child_.try_wait()) return report_end();
  // The exit follows, usually at once.
  if (timer_ == 0) timer_ = loop_.call_after(kExitWait, [this] { report_end(); });
}

// Seen before the last output, perhaps: pump_output() reads that first.
void Joiner::on_exit() {
  unwatch(end_);
  exited_ = true;
  pump_output();
}

// The connection outlives the command: other hosts' ranks may run on, and the job's exit code is
// still to come.
void Joiner::report_end() {
  std::string payload = number_text();
  append_u32(payload, static_cast<std::uint32_t>(child_.try_wait().value_or(kExitClientFailed)));
  stream_.send(DialFrameType::kEnded, payload);
  stream_.listen(true);
  drop_command();
  if (over_) return leave(exit_code_);
  // Asked to leave, we stay for the launcher's last message, which has the result of the job.
  if (signal_ == 0) return;
  timer_ = loop_.call_after(kLastWordTimeout, [this] { leave(exit_code_of_signal(signal_)); });
}

// --- the end -------------------------------------------------------------------------------------

// A signal that the user sent here is the reason that counts here, whatever the job ended with.
void Joiner::leave(int exit_code) {
  exit_code_ = signal_ != 0 ? exit_code_of_signal(signal_) : exit_code;
  if (signal_ != 0) error_.reset();
  drop_command();
  stream_.close();
  loop_.stop();
}

void Joiner::fail(std::string why) {
  error_ = make_error(ErrorCode::kFailed, std::move(why));
  leave(kExitLauncher);
}

void Joiner::watch(Watch& watched, int fd, std::uint32_t events, os::EventLoop::IoHandler handler) {
  if (watched.on) return;
  watched = {fd, loop_.watch(fd, events, std::move(handler)).has_value()};
}

void Joiner::unwatch(Watch& watched) {
  if (std::exchange(watched.on, false)) loop_.unwatch(watched.fd);
}

}  // namespace

Result<JoinUrl> url_of_key(std::string_view key, JoinUrl::Address address) {
  auto side = tls::make_server_side(kCertificateName, seed_of_key(key));
  if (!side) return std::move(side).error();
  return JoinUrl{std::move(side->fingerprint), token_of_key(key), {std::move(address)}};
}

// Each try has deadlines of its own. The user sees once what is waited for.
Result<std::unique_ptr<net::Stream>> dial_launcher(const JoinOptions& options,
                                                   std::string& reached) {
  constexpr std::chrono::milliseconds kLongestPause{1'000};
  std::chrono::milliseconds pause{50};
  const auto give_up = Clock::now() + options.launcher_wait;
  for (bool is_first = true;; is_first = false) {
    auto stream = dial(options, reached);
    const bool may_come = !stream && stream.error().code == ErrorCode::kUnavailable;
    if (!may_come || Clock::now() + pause >= give_up) return stream;
    if (is_first) {
      std::fprintf(stderr, "horarun: waiting for node 0 at %s\n",
                   format_join_address(options.url.addresses.front()).c_str());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

JoinRequest join_request(const JoinOptions& options) {
  return {options.url.token, options.name.empty() ? net::host_name() : options.name,
          static_cast<std::uint32_t>(options.slots)};
}

// Dialling blocks, with a deadline, before there is a loop or anything to clean up; a signal then
// ends the process as it ends any other.
Result<int> join_job(const JoinOptions& options) {
  std::string launcher;
  auto stream = dial_launcher(options, launcher);
  if (!stream) return std::move(stream).error();
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  Joiner* joiner_seen = nullptr;
  auto signals = Signals::watch(**loop, [&joiner_seen](int signal) {
    if (joiner_seen != nullptr) joiner_seen->on_signal(signal);
  });
  if (!signals) return std::move(signals).error();
  Joiner joiner(**loop, *std::move(stream), options, std::move(launcher));
  joiner_seen = &joiner;
  HORA_TRY(joiner.begin());
  HORA_TRY((*loop)->run());
  return joiner.outcome();
}

}  // namespace hora::launcher
