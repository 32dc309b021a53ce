// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>

#include "rendezvous/net/socket.h"
#include "rendezvous/store.h"

namespace hora::test {

using collectives::Communicator;
using rendezvous::KvEntries;

namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  void open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read_end = fds[0];
    write_end = fds[1];
  }
};

// A process that sets a value writes it into the pipes of all, with its key: leaders publish their
// address, too.
class PipeStore final : public rendezvous::Store {
 public:
  explicit PipeStore(std::vector<Pipe> pipes, int rank) : pipes_(std::move(pipes)), rank_(rank) {}

  Status set(std::string_view key, std::string_view value, Deadline) override {
    const std::string line = std::string(key) + "=" + std::string(value) + "\n";
    for (const Pipe& pipe : pipes_) {
      if (::write(pipe.write_end, line.data(), line.size()) < 0) {
        return make_error(ErrorCode::kFailed, "write");
      }
    }
    return Ok{};
  }
  Result<std::string> wait(std::string_view key, Deadline deadline) override {
    const int pipe = pipes_[static_cast<std::size_t>(rank_)].read_end;
    while (values_.find(key) == values_.end()) {
      HORA_TRY(net::wait_readable(pipe, deadline, "the other ranks"));
      std::string line;
      char c = 0;
      while (::read(pipe, &c, 1) == 1 && c != '\n') line += c;
      const std::size_t end = line.find('=');
      values_[line.substr(0, end)] = line.substr(end + 1);
    }
    return values_.find(key)->second;
  }
  Status set_all(std::string_view, const KvEntries&, Deadline) override { return unused(); }
  Result<std::optional<std::string>> get(std::string_view, Deadline) override { return unused(); }
  Result<KvEntries> gather(std::string_view, std::size_t, Deadline) override { return unused(); }
  Status remove(std::string_view, Deadline) override { return unused(); }

 private:
  static Error unused() { return make_error(ErrorCode::kFailed, "not used by these tests"); }
  std::vector<Pipe> pipes_;
  int rank_;
  std::map<std::string, std::string, std::less<>> values_;  // what has been read
};

[[noreturn]] void run_child(const WorldOptions& options, int rank, std::vector<Pipe> pipes,
                            int report, const std::string& job, const RankBody& body) {
  std::string failure;
  try {
    auto joined = Communicator::join(
        start_of(options, rank, std::make_shared<PipeStore>(std::move(pipes), rank), job));
    if (!joined) throw std::runtime_error(joined.error().message);
    body(**joined);
  } catch (const std::exception& thrown) {
    failure = thrown.what();
  }
  [[maybe_unused]] const ssize_t ignored = ::write(report, failure.data(), failure.size());
  _exit(failure.empty() ? 0 : 1);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

std::vector<ProcessResult> run_processes(const WorldOptions& options, const RankBody& body,
                                         int stopped) {
  const auto count = static_cast<std::size_t>(options.size);
  const std::string job = "fork-" + std::to_string(getpid());
  std::vector<Pipe> pipes(count);
  std::vector<Pipe> reports(count);
  for (std::size_t i = 0; i < count; ++i) {
    pipes[i].open();
    reports[i].open();
  }
  std::vector<pid_t> children(count);
  for (std::size_t i = 0; i < count; ++i) {
    children[i] = fork();
    if (children[i] < 0) throw std::runtime_error("fork");
    if (children[i] == 0) {
      run_child(options, static_cast<int>(i), pipes, reports[i].write_end, job, body);
    }
  }
  for (std::size_t i = 0; i < count; ++i) ::close(reports[i].write_end);
  std::vector<ProcessResult> results(count);
  const auto deadline = Clock::now() + std::chrono::minutes(2);
  auto first_death = Clock::time_point{};
  for (std::size_t left = count; left > 0;) {
    if (left == 1 && stopped >= 0 && children[static_cast<std::size_t>(stopped)] > 0) {
      ::kill(children[static_cast<std::size_t>(stopped)], SIGKILL);
    }
    if (Clock::now() > deadline) {
      for (pid_t child : children) {
        if (child > 0) ::kill(child, SIGKILL);
      }
    }
    int status = 0;
    siginfo_t info{};
    // Sleeps until a child changes; the alarm of the deadline is a poll once a second.
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
      ::poll(nullptr, 0, 5);
      continue;
    }
    const pid_t ended = waitpid(-1, &status, 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (children[i] != ended) continue;
      children[i] = 0;
      if (first_death == Clock::time_point{}) first_death = Clock::now();
      results[i].exited = WIFEXITED(status);
      results[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      results[i].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      results[i].seconds = std::chrono::duration<double>(Clock::now() - first_death).count();
      --left;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    results[i].text = read_all(reports[i].read_end);
    ::close(reports[i].read_end);
    ::close(pipes[i].read_end);
    ::close(pipes[i].write_end);
  }
  return results;
}

}  // namespace hora::test
