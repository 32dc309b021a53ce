// SPDX-License-Identifier: Apache-2.0
#include "tests/support/agent_driver.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "launcher/process/process_table.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/files.h"

namespace hora::test {

using namespace launcher;

namespace {

std::string text_of(const std::string& path) {
  auto text = os::read_file(path);
  return text ? *std::move(text) : std::string();
}

// A main thread that has ended shows nothing any more, though others live.
std::string shown_by(const ProcessEntry& process, const std::string& file) {
  const std::string folder = "/proc/" + std::to_string(process.pid) + "/";
  std::string text = text_of(folder + file);
  if (!text.empty() || process.threads <= 1) return text;
  for (const pid_t thread : list_threads(process.pid).value_or(std::vector<pid_t>())) {
    text += text_of(folder + "task/" + std::to_string(thread) + "/" + file);
  }
  return text;
}

std::vector<pid_t> processes_where(const char* file, const std::string& text) {
  std::vector<pid_t> found;
  const auto all = list_processes().value();
  for (const ProcessEntry& entry : all) {
    if (entry.is_zombie() || entry.pid == ::getpid()) continue;
    if (shown_by(entry, file).find(text) != std::string::npos) found.push_back(entry.pid);
  }
  return found;
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

}  // namespace

std::string agent_path() {
  if (const char* path = std::getenv("HORA_TEST_AGENT")) return path;
  return HORA_TEST_AGENT_PATH;
}

AgentDriver::AgentDriver(std::vector<std::string> arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error("socketpair");
  }
  stream_ = os::Fd(ends[0]);
  os::Fd theirs(ends[1]);
  arguments.insert(arguments.begin(), {agent_path(), "agent"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  SpawnRequest request;
  request.program = arguments.front().c_str();
  request.argv = argv.data();
  request.envp = environ;
  request.stdin_fd = theirs.get();
  request.stdout_fd = theirs.get();
  request.stderr_fd = STDERR_FILENO;
  const SpawnOutcome outcome = spawn(request);
  if (!outcome.ok()) throw std::runtime_error("spawning " + arguments.front());
  shim_ = outcome.pid;
}

AgentDriver::~AgentDriver() {
  close();
  if (!reap_shim()) ::kill(shim_, SIGKILL);
}

bool AgentDriver::reap_shim(Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!reaped_) {
    const pid_t pid = ::waitpid(shim_, nullptr, WNOHANG);
    if (pid == shim_ || (pid < 0 && errno == ECHILD)) {
      reaped_ = true;
    } else if (Clock::now() >= deadline) {
      return false;
    } else {
      ::poll(nullptr, 0, 1);
    }
  }
  return true;
}

bool AgentDriver::kill_both() {
  const pid_t pid = agent();
  // Their process group, in one call: each looks after the other when it is killed alone.
  ::kill(-shim_, SIGKILL);
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  for (auto entry = read_process(pid); entry && !entry->is_zombie(); entry = read_process(pid)) {
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return reap_shim();
}

pid_t AgentDriver::agent() {
  const auto all = list_processes().value();
  for (const ProcessEntry& entry : all) {
    if (entry.parent == shim_) return entry.pid;
  }
  throw std::runtime_error("the shim has no child");
}

void AgentDriver::send(FrameType type, std::string_view payload) {
  const std::string bytes = encode_frame(type, payload);
  std::size_t sent = 0;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (sent < bytes.size()) {
    const ssize_t wrote = ::send(stream_.get(), bytes.data() + sent, bytes.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote >= 0) {
      sent += static_cast<std::size_t>(wrote);
    } else if (errno == EAGAIN) {
      // The agent may itself wait for us to read.
      pollfd both{stream_.get(), POLLOUT | POLLIN, 0};
      if (::poll(&both, 1, remaining_ms(deadline)) == 0) throw std::runtime_error("send: timeout");
      if ((both.revents & POLLIN) != 0 && !fill(Clock::now())) return;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return;  // the reading side reports
    } else if (errno != EINTR) {
      throw std::runtime_error(std::string("send: ") + std::strerror(errno));
    }
  }
}

void AgentDriver::send_number(FrameType type, std::uint32_t number) {
  std::string payload;
  append_u32(payload, number);
  send(type, payload);
}

void AgentDriver::send_order(const HostOrder& order) { send(FrameType::kOrder, encode(order)); }

// Reads once; false at the end of the stream or when the time is up.
bool AgentDriver::fill(Clock::time_point deadline) {
  pollfd readable{stream_.get(), POLLIN, 0};
  while (true) {
    const int ready = ::poll(&readable, 1, remaining_ms(deadline));
    if (ready > 0) break;
    if (ready == 0) throw std::runtime_error("no frame from the agent in time");
    if (errno != EINTR) throw std::runtime_error("poll");
  }
  static thread_local char chunk[256 * 1024];
  const ssize_t got = ::read(stream_.get(), chunk, sizeof chunk);
  if (got <= 0) return false;
  const std::string_view bytes(chunk, static_cast<std::size_t>(got));
  if (greeted_) {
    reader_.feed(bytes);
    return true;
  }
  std::string rest;
  if (magic_.feed(bytes, rest)) {
    greeted_ = true;
    reader_.feed(rest);
  }
  return true;
}

std::optional<Frame> AgentDriver::next(Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    auto frame = reader_.next();
    if (!frame) throw std::runtime_error("bad frame: " + frame.error().message);
    if (frame->has_value()) {
      if ((*frame)->type == FrameType::kHeartbeat) {
        ++heartbeats;
        if (Clock::now() >= deadline)
          throw std::runtime_error("only heartbeats until the deadline");
        continue;
      }
      take_in(**frame);
      return std::move(**frame);
    }
    if (!fill(deadline)) return std::nullopt;
  }
}

void AgentDriver::take_in(const Frame& frame) {
  order_of_frames.push_back(frame.type);
  std::string_view payload = frame.payload;
  switch (frame.type) {
    case FrameType::kOutput: {
      const int rank = static_cast<int>(*read_u32(payload));
      const int which = static_cast<unsigned char>(payload.front());
      payload.remove_prefix(1);
      if (on_output) {
        on_output(rank, which, payload);
      } else {
        output[{rank, which}].append(payload);
      }
      if (acknowledge_output) {
        send_number(FrameType::kOutputAck, static_cast<std::uint32_t>(payload.size()));
      }
      break;
    }
    case FrameType::kOutputEnd: {
      const int rank = static_cast<int>(*read_u32(payload));
      ++output_ends[{rank, payload.front()}];
      break;
    }
    case FrameType::kStarted: {
      const Started started = decode<Started>(payload).value();
      for (const auto& [rank, pid] : started.pids) pids[rank] = static_cast<pid_t>(pid);
      break;
    }
    case FrameType::kExit: {
      const RankExit exit = decode<RankExit>(payload).value();
      exits[exit.rank] = exit;
      break;
    }
    case FrameType::kGoodbye:
      goodbye = decode<Goodbye>(payload).value();
      break;
    case FrameType::kFailure:
      failure = decode<Failure>(payload).value();
      break;
    case FrameType::kInputAck: {
      const int rank = static_cast<int>(*read_u32(payload));
      input_acknowledged[rank] += *read_u32(payload);
      break;
    }
    default:
      break;
  }
}

Frame AgentDriver::wait_for(FrameType type, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    auto frame = next(Milliseconds(remaining_ms(deadline)));
    if (!frame) throw std::runtime_error("the stream ended first");
    if (frame->type == type) return std::move(*frame);
    if (frame->type == FrameType::kFailure) {
      throw std::runtime_error("failure: " + failure->code + ": " + failure->message);
    }
  }
}

Hello AgentDriver::hello() { return decode<Hello>(wait_for(FrameType::kHello).payload).value(); }

void AgentDriver::start(const HostOrder& order) {
  send_order(order);
  wait_for(FrameType::kReady);
  send(FrameType::kStart);
  wait_for(FrameType::kStarted);
}

void AgentDriver::run(const HostOrder& order) {
  start(order);
  wait_for_goodbye();
}

void AgentDriver::wait_for_goodbye(Milliseconds timeout) {
  if (!goodbye) wait_for(FrameType::kGoodbye, timeout);
}

void AgentDriver::wait_for_output(int rank, std::string_view text) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (output[{rank, 1}].find(text) == std::string::npos) {
    if (!next(Milliseconds(remaining_ms(deadline)))) {
      throw std::runtime_error("the stream ended before the output came");
    }
  }
}

bool AgentDriver::wait_for_end(Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  try {
    while (next(Milliseconds(remaining_ms(deadline)))) {
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

HostOrder make_order(std::vector<std::string> argv, int ranks) {
  HostOrder order;
  order.job_id = unique_word("job");
  order.working_directory = "/";
  order.argv = std::move(argv);
  order.environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  for (int rank = 0; rank < ranks; ++rank) {
    order.ranks.push_back({rank, rank, {{"RANK", std::to_string(rank)}}, StdinSource::kNull});
  }
  order.grace_ms = 1'000;
  order.lease_ms = 10'000;
  return order;
}

HostOrder shell_order(const std::string& line, int ranks) {
  return make_order({"/bin/sh", "-c", line}, ranks);
}

std::vector<pid_t> processes_with_environment(const std::string& text) {
  return processes_where("environ", text);
}

std::vector<pid_t> processes_with_argument(const std::string& text) {
  return processes_where("cmdline", text);
}

bool all_gone(const std::string& job_id, const std::string& argument,
              std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    // A process that forks and exits all the time is not seen by a look at one process after the
    // other.
    const bool held = text_of("/proc/net/unix").find("@" + argument) != std::string::npos;
    if (!held && processes_with_environment("HORA_JOB_ID=" + job_id).empty() &&
        processes_with_argument(argument).empty()) {
      return true;
    }
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 2);
  }
}

std::string unique_word(std::string_view stem) {
  static std::atomic<int> count{0};
  return std::string(stem) + "-" + std::to_string(::getpid()) + "-" + std::to_string(++count) +
         "-" + std::to_string(Clock::now().time_since_epoch().count() % 1'000'000'007);
}

}  // namespace hora::test
