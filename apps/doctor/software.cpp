#include "software.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "python_questions.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"

extern char** environ;

namespace hora::doctor {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOutput = 256 * 1024;

Json python_facts(bool deep, std::chrono::milliseconds patience) {
  const Answer answer =
      ask({"python3", "-c", kPythonQuestions, deep ? "deep" : "versions"}, patience);
  Json out;
  if (answer.timed_out) {
    out["error"] = "python3 did not answer in time";
    return out;
  }
  if (answer.exit_code == 127 || answer.exit_code == -1) {
    out["error"] = "no python3 in PATH";
    return out;
  }
  out = Json::parse(answer.output, nullptr, false);
  if (out.is_discarded() || !out.is_object()) {
    out = Json::object();
    out["error"] = "python3 ended with code " + std::to_string(answer.exit_code);
  }
  return out;
}

// name, driver_version, memory.used, memory.total, uncorrected ECC errors; one GPU a line.
Json nvidia_facts(std::chrono::milliseconds patience) {
  Json gpus = Json::array();
  const Answer answer = ask({"nvidia-smi",
                             "--query-gpu=name,driver_version,memory.used,memory.total,"
                             "ecc.errors.uncorrected.volatile.total,utilization.gpu",
                             "--format=csv,noheader,nounits"},
                            patience);
  if (answer.exit_code != 0) return gpus;
  for (const std::string_view line : split(answer.output, '\n')) {
    const auto parts = split(line, ',');
    if (parts.size() < 6) continue;
    Json gpu;
    gpu["name"] = std::string(trim(parts[0]));
    gpu["driver"] = std::string(trim(parts[1]));
    gpu["used_mib"] = parse_int<std::int64_t>(trim(parts[2])).value_or(-1);
    gpu["total_mib"] = parse_int<std::int64_t>(trim(parts[3])).value_or(-1);
    gpu["ecc_errors"] = parse_int<std::int64_t>(trim(parts[4])).value_or(0);
    gpu["utilization"] = parse_int<std::int64_t>(trim(parts[5])).value_or(0);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

int gpu_processes(std::chrono::milliseconds patience) {
  const Answer answer =
      ask({"nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"}, patience);
  if (answer.exit_code != 0) return -1;
  int count = 0;
  for (const std::string_view line : split(answer.output, '\n')) count += trim(line).empty() ? 0 : 1;
  return count;
}

}  // namespace

Answer ask(const std::vector<std::string>& command, std::chrono::milliseconds patience) {
  Answer answer;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return answer;
  const os::Fd read_end(ends[0]);
  os::Fd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  write_end.reset();
  if (failed != 0) {
    if (failed == ENOENT) answer.exit_code = 127;
    return answer;
  }
  const auto deadline = Clock::now() + patience;
  char bytes[4096];
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      answer.timed_out = true;
      break;
    }
    pollfd entry{read_end.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t got = ::read(read_end.get(), bytes, sizeof bytes);
    if (got <= 0) break;
    if (answer.output.size() < kMostOutput) answer.output.append(bytes, static_cast<std::size_t>(got));
  }
  if (answer.timed_out) ::kill(-pid, SIGKILL);
  int status = 0;
  // Its output has ended, so it is about to end; if not, it does not keep us.
  const auto end_by = Clock::now() + std::chrono::milliseconds(200);
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= end_by) ::kill(-pid, SIGKILL);
    ::usleep(500);
  }
  if (!answer.timed_out && WIFEXITED(status)) answer.exit_code = WEXITSTATUS(status);
  return answer;
}

Json software_facts(bool deep, std::chrono::milliseconds patience) {
  Json out;
  auto python = std::async(std::launch::async, [=] { return python_facts(deep, patience); });
  const Answer libc = ask({"getconf", "GNU_LIBC_VERSION"}, patience);
  const std::string text(trim(libc.output));
  if (libc.exit_code == 0 && text.rfind("glibc ", 0) == 0) out["glibc"] = text.substr(6);
  out["nvidia"] = nvidia_facts(patience);
  if (!out["nvidia"].empty()) out["gpu_processes"] = gpu_processes(patience);
  out["python"] = python.get();
  return out;
}

}  // namespace hora::doctor
