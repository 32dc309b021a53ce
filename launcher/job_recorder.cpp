#include "launcher/job_recorder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

Status write_all(int fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "writing " + path);
    done += static_cast<std::size_t>(wrote);
  }
  return Ok{};
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

Status write_report(const JobReport& report, const std::string& path) {
  const bool page = path.size() > 5 && path.compare(path.size() - 5, 5, ".html") == 0;
  const std::string text = page ? report_html(report) : report_json(report);
  const std::string beside = path + "." + std::to_string(::getpid());
  const os::Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return errno_error(errno, "making " + path);
  Status wrote = write_all(file.get(), text, path);
  if (wrote && ::rename(beside.c_str(), path.c_str()) != 0) wrote = errno_error(errno, "naming " + path);
  if (!wrote) ::unlink(beside.c_str());
  return wrote;
}

}  // namespace hora::launcher
