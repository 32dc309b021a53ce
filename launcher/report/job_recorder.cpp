#include "launcher/report/job_recorder.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

// A reader that has stopped reading must not keep us from ending.
Status wait_for_reader(int fd, const std::string& path) {
  constexpr int kPatienceMs = 5'000;
  pollfd reader{fd, POLLOUT, 0};
  const int ready = ::poll(&reader, 1, kPatienceMs);
  if (ready > 0 || (ready < 0 && errno == EINTR)) return Ok{};
  return make_error(ErrorCode::kTimedOut, "writing " + path + ": nobody has read from it for " +
                                              std::to_string(kPatienceMs / 1000) + " s");
}

Status write_all(int fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {
      HORA_TRY(wait_for_reader(fd, path));
      continue;
    }
    if (wrote < 0) return errno_error(errno, "writing " + path);
    done += static_cast<std::size_t>(wrote);
  }
  return Ok{};
}

bool is_device(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// A device or a pipe is written to as it stands: giving its name to a file would take it away from
// everybody.
Status write_into(const std::string& text, const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  return write_all(file.get(), text, path);
}

// A link stays one.
std::string behind_links(const std::string& path) {
  char* found = ::realpath(path.c_str(), nullptr);
  const std::string real = found != nullptr ? found : path;
  ::free(found);
  return real;
}

// A file is there as a whole or not at all. Its folder may be everybody's, as /tmp is: what others
// have put there is neither followed nor written to.
Status write_beside(const std::string& text, const std::string& name, mode_t mode) {
  if (is_device(name)) return write_into(text, name);
  const std::string path = behind_links(name);
  const std::string beside = path + "." + os::random_token().substr(0, 16);
  const os::Fd file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.valid()) return errno_error(errno, "making " + path);
  Status wrote = write_all(file.get(), text, path);
  if (wrote && ::rename(beside.c_str(), path.c_str()) != 0)
    wrote = errno_error(errno, "naming " + path);
  if (!wrote) ::unlink(beside.c_str());
  return wrote;
}

}  // namespace

std::string rfc3339_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Status check_writable(const std::string& path) {
  if (is_device(path)) {
    return ::access(path.c_str(), W_OK) == 0 ? Status(Ok{}) : errno_error(errno, path);
  }
  const std::string real = behind_links(path);
  struct stat info {};
  if (::stat(real.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return errno_error(EISDIR, path);
  const std::size_t slash = real.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : real.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return errno_error(errno, path + ": the folder cannot be written");
  }
  return Ok{};
}

Status write_report(const JobReport& report, const std::string& path) {
  const bool page = path.size() > 5 && path.compare(path.size() - 5, 5, ".html") == 0;
  return write_beside(page ? report_html(report) : report_json(report), path, 0644);
}

Status write_private_file(const std::string& text, const std::string& path) {
  return write_beside(text, path, 0600);
}

}  // namespace hora::launcher
