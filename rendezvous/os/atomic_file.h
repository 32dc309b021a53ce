// SPDX-License-Identifier: Apache-2.0
// A file that is there as a whole or not at all: it is written beside and then gets its name. Its
// folder may be everybody's, as /tmp is: what others have put there is neither followed nor written
// to. A link stays one. A device or a pipe is written to as it stands: giving its name to a file
// would take it away from everybody.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::os {

// Whether a file of that name could be written: asked before the work begins.
Status check_writable(const std::string& path);

// Whether it is what this process has as its standard output: "-", /dev/stdout, or the file or the
// device behind it by any other name.
bool is_standard_output(const std::string& path);

class AtomicFile {
 public:
  // `patience`: with a pipe that nobody reads from; for ever without.
  static Result<AtomicFile> make(const std::string& path, mode_t mode,
                                 std::optional<std::chrono::milliseconds> patience = {});
  // As it stands, without a name to take.
  static Result<AtomicFile> standard_output();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // what did not get its name is removed

  Status write(std::string_view bytes);
  Status finish();  // nothing is written after it

 private:
  AtomicFile() = default;
  Status wait_for_reader() const;

  std::string name_;    // the user's
  std::string path_;    // behind links
  std::string beside_;  // empty: it has its name, or is a device
  std::optional<std::chrono::milliseconds> patience_;
  Fd file_;
};

}  // namespace hora::os
