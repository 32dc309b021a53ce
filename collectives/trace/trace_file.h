// SPDX-License-Identifier: Apache-2.0
// A JSON array on disk that a reader can use at any moment, also after a SIGKILL of this process.
//
// Every write lies within one page of the file, which the kernel copies whole or not at all, and
// every event lies within one page, blanks filling the rest. Between flushes the array is closed;
// within one it may lack its last "]", which readers of Chrome traces do without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

class TraceFile {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  // Made new, or emptied. Beyond `most_bytes` nothing is written.
  static Result<TraceFile> open(const std::string& path, std::uint64_t most_bytes);

  // One JSON object, without what separates it from others; it fits into a page with room for 16
  // bytes. Written at the next flush, or when its page is full.
  void append(std::string_view event);
  // Everything appended is with the kernel, and the array is closed. False: a write failed
  // (errno's text is in failure()); nothing more is written.
  bool flush();
  // Delayed writes of a file system may fail as late as this: false, as for flush().
  bool close();

  // There is room for a last word, and hardly more.
  bool nearly_full() const { return page_start_ + 2 * kPageBytes > most_bytes_; }
  const std::string& failure() const { return failure_; }

 private:
  TraceFile(os::Fd fd, std::uint64_t most_bytes);
  bool full() const { return page_start_ + kPageBytes > most_bytes_; }
  void next_page();
  void write_page(std::size_t end);

  os::Fd fd_;
  std::uint64_t most_bytes_;
  std::uint64_t page_start_ = 0;  // of the page that is being filled
  std::string page_;              // what it holds so far, without the closing bracket
  std::size_t written_ = 0;       // of page_, with the kernel
  bool first_ = true;
  bool closed_ = false;  // the array on disk ends with its bracket
  std::string failure_;
};

}  // namespace hora::collectives
