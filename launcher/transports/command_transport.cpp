// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/command_transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/process/piped_child.h"
#include "launcher/process/program_search.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/remote_command.h"
#include "launcher/transports/supervisor_socket.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kReadSize = 64 * 1024;
constexpr std::size_t kBurst = 1024 * 1024;  // bytes moved before other hosts have their turn
constexpr auto kExitWait = std::chrono::seconds(3);     // between end of output and exit
constexpr auto kEndTimeout = std::chrono::seconds(1);   // after end of input, and after TERM
constexpr std::chrono::milliseconds kLastTimeout{300};  // for all children when the job is over
constexpr int kMostRefusals = 5;                        // that may pass: two to four seconds

}  // namespace

// The child process, and the bytes between it and the host's link. Lives on one event loop's
// thread. The states are implicit: running_, then output_at_end_ and exited_ in either order, then
// report_end().
class CommandHost : private AgentLink::Carrier {
 public:
  using Done = std::function<void(CommandHost*)>;

  // `command` outlives the object. `done` is called once, when nothing is left to do; it may not
  // destroy the object at once.
  CommandHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Host host,
              const CommandTransport::Command& command, std::shared_ptr<FanOut> fan_out,
              Clock::time_point deadline, Done done)
      : loop_(loop),
        link_(loop, std::move(local), std::move(options), *this),
        host_(std::move(host)),
        command_(command),
        deadline_(deadline),
        permit_(std::move(fan_out), loop),
        done_(std::move(done)) {}
  ~CommandHost() override { drop_child(); }

  void begin();

  // For a transport that ends, when the loop no longer runs: asks the child to end.
  void hurry();
  bool child_has_ended() { return !running_ || child_.try_wait().has_value(); }

 private:
  void link_changed() override { pump(); }
  void link_restarts() override;
  void link_finished() override;

  void run();
  void drop_child();
  void fail(const std::string& why);
  void on_deadline();
  void pump();
  void write_input();
  void read_output();
  void read_errors();
  void on_exit();
  void settle_end();
  bool is_refused_for_now() const;
  void run_later();
  void report_end();
  RemoteEnd end_of_child();
  void ask_child_to_end();
  void finish();

  os::EventLoop& loop_;
  AgentLink link_;
  const Host host_;
  const CommandTransport::Command& command_;
  const Clock::time_point deadline_;
  FanOut::Permit permit_;  // until its agent runs
  Done done_;
  BackOff back_off_;  // after refusals that may pass

  PipedChild child_;
  bool running_ = false;  // there is a child whose end is not settled
  bool exited_ = false;
  bool output_at_end_ = false;
  bool finishing_ = false;  // the link is over; the child has a moment to end
  bool asked_to_end_ = false;
  Watch in_{loop_}, out_{loop_}, err_{loop_}, end_{loop_};  // of the child
  Timer start_timer_{loop_};
  Timer again_timer_{loop_};  // until the command runs again
  Timer exit_timer_{loop_};
};

void CommandHost::begin() {
  if (!link_.open()) return finish();
  start_timer_.set(deadline_, [this] { on_deadline(); });
  permit_.wait([this] { run(); });
}

void CommandHost::run() {
  auto line = link_.command_line();
  if (!line) return fail(line.error().message);
  auto argv = rsh_argv(command_.words, host_, *line);
  if (!argv) return fail(argv.error().message);
  link_.report(Stage::kConnect, rsh_program(command_.words));
  auto child = PipedChild::start(*argv);
  if (!child) return fail(child.error().message);
  child_ = *std::move(child);
  running_ = true;
  (void)out_.start(child_.stdout_fd.get(), EPOLLIN, [this](std::uint32_t) { pump(); });
  (void)err_.start(child_.stderr_fd.get(), EPOLLIN, [this](std::uint32_t) { read_errors(); });
  // Without a pidfd (old kernels) only the end of the output shows that the child is gone.
  if (child_.ended_fd() >= 0) {
    (void)end_.start(child_.ended_fd(), EPOLLIN, [this](std::uint32_t) { on_exit(); });
  }
  link_.report(Stage::kShell);
}

void CommandHost::drop_child() {
  exit_timer_.cancel();
  for (Watch* each : {&in_, &out_, &err_, &end_}) each->stop();
  child_ = PipedChild();
  running_ = exited_ = output_at_end_ = false;
  link_.clear_errors();
}

void CommandHost::fail(const std::string& why) {
  link_.fail({std::string(failure::kRsh), why, ""});
}

// What the client printed last is the best explanation of a start that hangs.
void CommandHost::on_deadline() {
  if (link_.agent_started() || link_.ended()) return;
  if (running_) read_errors();
  const auto printed = trim(link_.errors());
  fail("'" + rsh_program(command_.words) + "' did not start an agent in time" +
       (printed.empty() ? "" : "; it said: " + quote(printed)));
}

// --- calls of the link ---------------------------------------------------------------------------

// Unlike ssh channels, a client command has one stream: a restart needs a new process.
void CommandHost::link_restarts() {
  drop_child();
  run();
}

void CommandHost::link_finished() {
  permit_.leave();
  start_timer_.cancel();
  again_timer_.cancel();
  finishing_ = true;
  if (!running_ || exited_ || child_.try_wait()) return finish();
  // A client whose input ends lets the far side end in order.
  in_.stop();
  child_.stdin_fd.reset();
  exit_timer_.set(kEndTimeout, [this] { ask_child_to_end(); });
}

// The second step of three: end of input, then SIGTERM, then SIGKILL when the child is dropped.
void CommandHost::ask_child_to_end() {
  asked_to_end_ = true;
  child_.ask_to_end();
  exit_timer_.set(kEndTimeout, [this] { finish(); });
}

void CommandHost::finish() {
  exit_timer_.cancel();
  if (done_) std::exchange(done_, nullptr)(this);
}

void CommandHost::hurry() {
  child_.stdin_fd.reset();
  child_.stdout_fd.reset();
  child_.ask_to_end();
}

// --- bytes ---------------------------------------------------------------------------------------

void CommandHost::pump() {
  if (!running_) return;
  if (!finishing_) write_input();
  read_output();
  if (link_.agent_started()) permit_.leave();
}

void CommandHost::write_input() {
  while (child_.stdin_fd.valid() && !link_.outgoing().empty()) {
    const auto bytes = link_.outgoing();
    const ssize_t wrote = ::write(child_.stdin_fd.get(), bytes.data(), bytes.size());
    if (wrote > 0) {
      link_.sent(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EAGAIN) {
      if (!in_.is_on()) {
        (void)in_.start(child_.stdin_fd.get(), EPOLLOUT, [this](std::uint32_t) { pump(); });
      }
      return;
    } else if (wrote == 0 || errno != EINTR) {  // it reads no more: its exit explains why
      in_.stop();
      child_.stdin_fd.reset();
    }
  }
  in_.stop();
  if (link_.wants_end_of_input()) child_.stdin_fd.reset();
}

void CommandHost::read_output() {
  const auto buffer = os::thread_buffer<CommandHost, kReadSize>();
  std::size_t moved = 0;
  while (!output_at_end_ && moved < kBurst) {
    const std::size_t room = std::min(link_.room(), buffer.size());
    if (room == 0) break;
    const ssize_t got = ::read(child_.stdout_fd.get(), buffer.data(), room);
    if (got < 0 && errno == EINTR) continue;
    // After the exit, another process (a forked helper of the client) may keep the pipe open.
    if (got < 0 && errno == EAGAIN && !exited_) break;
    output_at_end_ = got <= 0;
    if (got <= 0) break;
    moved += static_cast<std::size_t>(got);
    link_.on_remote_output({buffer.data(), static_cast<std::size_t>(got)});
  }
  if (output_at_end_) {
    out_.stop();
    return settle_end();
  }
  out_.change(link_.room() == 0 ? 0u : EPOLLIN);
}

// What it prints after it was asked to end is not a reason for the job's end.
void CommandHost::read_errors() {
  char buffer[4096];
  while (child_.stderr_fd.valid()) {
    const ssize_t got = ::read(child_.stderr_fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      err_.stop();
      return child_.stderr_fd.reset();
    }
    const std::string_view bytes(buffer, static_cast<std::size_t>(got));
    link_.on_remote_errors(bytes);
    if (command_.on_errors && !asked_to_end_) command_.on_errors(bytes);
  }
}

// --- the end -------------------------------------------------------------------------------------

// The exit may be seen before the last output is read, so pump() drains the pipe first.
void CommandHost::on_exit() {
  end_.stop();
  exited_ = true;
  if (finishing_) return finish();
  pump();
}

// The output has ended; the exit follows, usually at once.
void CommandHost::settle_end() {
  if (!running_) return;
  if (exited_ || child_.try_wait()) return report_end();
  if (!exit_timer_.is_set()) exit_timer_.set(kExitWait, [this] { report_end(); });
}

// Both on_exit() and settle_end() lead here; the exchange makes the report happen once.
void CommandHost::report_end() {
  if (!std::exchange(running_, false)) return;
  exit_timer_.cancel();
  read_errors();
  for (Watch* each : {&in_, &out_, &err_, &end_}) each->stop();
  if (is_refused_for_now()) return run_later();
  link_.on_remote_end(end_of_child());
}

RemoteEnd CommandHost::end_of_child() {
  const std::string name = "'" + rsh_program(command_.words) + "'";
  const auto status = child_.try_wait();
  if (!status) return {{}, "", name + " closed its output but keeps running"};
  const std::string note = *status == 0 ? "" : carriage_return_note(command_.words);
  if (*status != kExitClientFailed && note.empty()) return {status, "", ""};
  std::string error = name + " exited with status " + std::to_string(*status) + note;
  // ssh's reason is what the user needs.
  const auto& words = command_.words;
  const bool quiet = std::find(words.begin(), words.end(), "-q") != words.end();
  if (quiet && note.empty() && trim(link_.errors()).empty()) {
    error += " without a word; leave -q out to see why";
  }
  return {{}, "", std::move(error)};
}

// What the client printed decides: its exit status is the same for a host that refuses for good.
bool CommandHost::is_refused_for_now() const {
  return !command_.passing_refusal.empty() &&
         link_.errors().find(command_.passing_refusal) != std::string::npos &&
         !link_.agent_started() && !link_.ended() && back_off_.attempts() < kMostRefusals;
}

void CommandHost::run_later() {
  back_off_.count_attempt();
  const auto pause = back_off_.next_pause();
  link_.report(Stage::kConnect, "trying again in " + std::to_string(pause.count()) +
                                    " ms: " + visible_line(trim(link_.errors())));
  drop_child();
  again_timer_.set(pause, [this] { run(); });
}

// --- the transport -------------------------------------------------------------------------------

CommandTransport::CommandTransport(Command command, StageObserver observer,
                                   std::shared_ptr<FanOut> fan_out)
    : command_(std::move(command)), observer_(std::move(observer)), fan_out_(std::move(fan_out)) {}

// A transport without hosts starts no thread.
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
  HORA_TRY(adopt({pair->transport, host, host_index, image, deadline}));
  return std::move(pair->supervisor);
}

Status CommandTransport::adopt(HostStart start) {
  // A user error, found before any process starts.
  if (command_.words.empty()) return make_error(ErrorCode::kUsage, "--rsh names no command");
  HORA_TRY(start_thread());
  AgentLinkOptions options;
  options.host = "host " + start.host.name;
  options.host_index = start.host_index;
  options.image = std::move(start.image);
  // srun drops what is under way when the agent ends while input for it is arriving.
  options.image.arguments.push_back("--stay");
  options.payloads = &payloads_;
  options.observer = observer_;
  options.lost_class = failure::kRsh;
  options.shell_class = failure::kRsh;
  options.shell_advice =
      !command_.advice.empty()
          ? command_.advice
          : "try the command by hand: " + rsh_program(command_.words) +
                " ... must pass stdin and stdout through, unchanged and without a "
                "terminal";
  os::EventLoop& loop = threads_->loop(0);
  loop.post([this, &loop, start = std::move(start), options = std::move(options)]() mutable {
    auto made = std::make_unique<CommandHost>(
        loop, std::move(*start.stream), std::move(options), std::move(start.host), command_,
        fan_out_, start.deadline,
        // A host asks for its removal from inside its own callback: the next turn removes it.
        [this, &loop](CommandHost* done) { loop.post([this, done] { hosts_.erase(done); }); });
    CommandHost* started = made.get();
    hosts_[started] = std::move(made);
    started->begin();
  });
  return Ok{};
}

// Once the loop has stopped, this thread owns the hosts.
CommandTransport::~CommandTransport() {
  if (!threads_) return;
  threads_->stop();
  for (auto& [key, host] : hosts_) host->hurry();
  // One deadline for all children: a thousand of them must not take a thousand times as long.
  const auto deadline = Clock::now() + kLastTimeout;
  for (auto& [key, host] : hosts_) {
    while (!host->child_has_ended() && Clock::now() < deadline) ::poll(nullptr, 0, 2);
  }
  hosts_.clear();  // kills what is left
}

namespace {

// Only --rsh (or the MPI Operator's variable) can name the command that reaches a host.
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
      return make_command_transport(job.rsh_command, std::move(observer), job.fan_out,
                                    job.passing_refusal);
    }};

}  // namespace

const TransportDescriptor* command_transport_descriptor() { return &kDescriptor; }

std::unique_ptr<Transport> make_command_transport(std::vector<std::string> rsh_command,
                                                  StageObserver observer, int fan_out,
                                                  std::string passing_refusal) {
  return std::make_unique<CommandTransport>(
      CommandTransport::Command{std::move(rsh_command), std::move(passing_refusal), "", {}},
      std::move(observer), std::make_shared<FanOut>(fan_out));
}

}  // namespace hora::launcher
