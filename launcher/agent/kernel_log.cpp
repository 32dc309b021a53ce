// SPDX-License-Identifier: Apache-2.0
// Follows /dev/kmsg from the current end on. Many containers and restricted kernels do not allow
// it; the object then yields nothing.
#include "launcher/agent/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hora::launcher {

namespace {

// Limits one turn of the loop: the ranks need attention as well.
constexpr int kRecordsPerTurn = 4'096;
constexpr std::size_t kLongestRecord = 8 * 1024;  // of the kernel

}  // namespace

KernelLog::KernelLog() : fd_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (fd_.valid() && ::lseek(fd_.get(), 0, SEEK_END) < 0) fd_.reset();
}

// One read returns one record: "6,1234,5678901,-;the message
//  KEY=value
// ...".
bool KernelLog::read_new(const std::function<void(std::string_view)>& take) {
  static char record[kLongestRecord];
  for (int count = 0; fd_.valid() && count < kRecordsPerTurn; ++count) {
    const ssize_t got = ::read(fd_.get(), record, sizeof record);
    if (got < 0) {
      // EPIPE: newer messages have overwritten some that we have not read. EINVAL: a record is
      // longer than the buffer; the next read returns the next record.
      if (errno == EINTR || errno == EPIPE || errno == EINVAL) continue;
      return errno == EAGAIN;
    }
    if (got == 0) return false;
    std::string_view text(record, static_cast<std::size_t>(got));
    const std::size_t header_end = text.find(';');
    if (header_end == std::string_view::npos) continue;
    text.remove_prefix(header_end + 1);
    take(text.substr(0, text.find('\n')));
  }
  return fd_.valid();
}

}  // namespace hora::launcher
