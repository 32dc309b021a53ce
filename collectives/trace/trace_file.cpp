// SPDX-License-Identifier: Apache-2.0
// The file is a closed JSON array after every flush: the closing bracket is written after the last
// event and overwritten by the next one. Only the last page is held in memory, and pages are padded
// with blanks, so no event crosses a page that has been written.
#include "collectives/trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hora::collectives {

namespace {

constexpr std::string_view kClosing = "\n]\n";

}  // namespace

Result<TraceFile> TraceFile::open(const std::string& path, std::uint64_t most_bytes) {
  os::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return errno_error(errno, "opening the timeline " + path);
  return TraceFile(std::move(fd), most_bytes);
}

TraceFile::TraceFile(os::Fd fd, std::uint64_t most_bytes)
    : fd_(std::move(fd)), most_bytes_(std::max<std::uint64_t>(most_bytes, 4 * kPageBytes)) {
  page_ = "[\n";
}

void TraceFile::append(std::string_view event) {
  if (full()) return;
  const std::string_view separator = first_ ? "" : ",\n";
  // The closing bracket must fit as well.
  if (page_.size() + separator.size() + event.size() + kClosing.size() > kPageBytes) next_page();
  if (full()) return;
  page_ += separator;
  page_ += event;
  first_ = false;
  closed_ = false;
}

// The full page loses its closing bracket; the page that follows gets one at the next flush.
void TraceFile::next_page() {
  page_.resize(kPageBytes, ' ');
  page_.back() = '\n';
  write_page(kPageBytes);
  page_start_ += kPageBytes;
  page_.clear();
  written_ = 0;
}

bool TraceFile::flush() {
  if (closed_) return failure_.empty();
  const std::size_t end = page_.size();
  page_ += kClosing;
  write_page(page_.size());
  // The bracket is in the file, not in the page: the next event takes its place.
  page_.resize(end);
  written_ = end;
  closed_ = true;
  return failure_.empty();
}

bool TraceFile::close() {
  const int refused = fd_.close();
  if (refused != 0 && failure_.empty()) failure_ = std::system_category().message(refused);
  return failure_.empty();
}

// Begins where the last write ended: earlier bytes are not touched again.
void TraceFile::write_page(std::size_t end) {
  if (!failure_.empty()) return;
  std::size_t at = written_;
  while (at < end) {
    const ssize_t count =
        ::pwrite(fd_.get(), page_.data() + at, end - at, static_cast<off_t>(page_start_ + at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      failure_ = std::system_category().message(errno);
      return;
    }
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace hora::collectives
