// SPDX-License-Identifier: Apache-2.0
// A socket without a process behind it refuses connections: that is how the leftovers of a killed
// launcher are known. One whose process is stopped takes them, and does not answer.
#include "launcher/control/control_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/control/control_folder.h"
#include "launcher/control/kept_output.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kAnswerTimeout{1'000};
constexpr std::size_t kLongestLine = 64u << 20;

// Not valid: errno says why. A launcher that does not accept, since it is stopped and its queue is
// full, is not waited for.
os::Fd connect_to(const os::Fd& directory, const std::string& name) {
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = control_address(directory, name);
  if (socket.valid() &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int why = errno;
    socket.reset();
    errno = why;
  }
  return socket;
}

Result<JobSummary> ask_for_summary(const std::vector<std::string>& folders, int job) {
  auto connection = ControlConnection::open(folders, job, {ControlRequest::Kind::kJob});
  if (!connection) return std::move(connection).error();
  const auto line = connection->read_line(kAnswerTimeout);
  if (!line) return line.error();
  return parse_job_summary(*line);
}

// Which jobs have a socket there. Removes the sockets that no process listens on.
void collect_jobs(const std::string& folder, std::vector<int>& jobs) {
  const os::Fd directory = os::open_own_folder(folder, /*make=*/false);
  if (!directory.valid()) return;
  bool removed = false;
  for (const std::string& name : os::names_in("/proc/self/fd/" + std::to_string(directory.get()))) {
    const int job = job_of_name(name);
    // A job that is about to begin, or between two attempts, has output and no socket.
    if (const int writer = job_of_kept_output(name); writer != 0 && ::kill(writer, 0) != 0) {
      removed = ::unlinkat(directory.get(), name.c_str(), 0) == 0 || removed;
    }
    if (job == 0) continue;
    if (!connect_to(directory, name).valid() && errno == ECONNREFUSED) {
      removed = ::unlinkat(directory.get(), name.c_str(), 0) == 0 || removed;
    } else {
      jobs.push_back(job);
    }
  }
  if (removed) (void)::rmdir(folder.c_str());
}

}  // namespace

std::vector<JobSummary> running_jobs(const std::vector<std::string>& folders) {
  std::vector<int> numbers;
  for (const std::string& folder : folders) collect_jobs(folder, numbers);
  std::sort(numbers.begin(), numbers.end());
  std::vector<JobSummary> jobs;
  for (const int number : numbers) {
    auto job = ask_for_summary(folders, number);
    if (job) {
      jobs.push_back(std::move(*job));
    } else if (job.error().code != ErrorCode::kNotFound) {  // it has ended meanwhile
      JobSummary silent;
      silent.job = number;
      silent.state = "not answering";
      jobs.push_back(std::move(silent));
    }
  }
  return jobs;
}

Result<ControlConnection> ControlConnection::open(const std::vector<std::string>& folders, int job,
                                                  const ControlRequest& request) {
  for (const std::string& folder : folders) {
    const os::Fd directory = os::open_own_folder(folder, /*make=*/false);
    if (!directory.valid()) continue;
    os::Fd socket = connect_to(directory, std::to_string(job));
    if (!socket.valid() && errno == EAGAIN) {
      return make_error(ErrorCode::kTimedOut,
                        "the launcher of job " + std::to_string(job) + " does not answer");
    }
    if (!socket.valid()) continue;
    const std::string text = control_request_text(request);
    if (::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(text.size())) {
      return errno_error(errno, "asking the launcher of job " + std::to_string(job));
    }
    return ControlConnection(std::move(socket));
  }
  return make_error(ErrorCode::kNotFound,
                    "no job " + std::to_string(job) +
                        " of yours is running on this machine; horarun jobs lists those that are");
}

Result<std::string> ControlConnection::read_line(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (buffer_.size() > kLongestLine) {
      return make_error(ErrorCode::kFailed, "the launcher answered a line without end");
    }
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    pollfd ready{fd_.get(), POLLIN, 0};
    const int count =
        ::poll(&ready, 1, static_cast<int>(std::max<Milliseconds::rep>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return make_error(ErrorCode::kTimedOut, "the launcher does not answer");
    char bytes[65536];
    const ssize_t got = ::read(fd_.get(), bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return make_error(ErrorCode::kNotFound, "the launcher has ended");
    buffer_.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace hora::launcher
