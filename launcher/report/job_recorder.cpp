// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/job_recorder.h"

#include <sys/types.h>

#include <chrono>
#include <ctime>

#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// A report may go to a FIFO, which blocks without a reader: that must not keep a job from ending.
constexpr std::chrono::seconds kReaderTimeout{5};

Status write_whole(const std::string& text, const std::string& path, mode_t mode) {
  auto file = os::AtomicFile::make(path, mode, kReaderTimeout);
  if (!file) return std::move(file).error();
  HORA_TRY(file->write(text));
  return file->finish();
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

bool is_page(const std::string& path) { return path.ends_with(".html"); }

Status write_public_file(const std::string& text, const std::string& path) {
  return write_whole(text, path, 0644);
}

Status write_report(const JobReport& report, const std::string& path) {
  return write_public_file(is_page(path) ? report_html(report) : report_json(report), path);
}

// For the owner only: such a file may hold environment and command lines.
Status write_private_file(const std::string& text, const std::string& path) {
  return write_whole(text, path, 0600);
}

}  // namespace hora::launcher
