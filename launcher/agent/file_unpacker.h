// SPDX-License-Identifier: Apache-2.0
// Writes the files that a launcher sends as one zstd frame: sizes and the frame's SHA-256 must be
// those that were announced; kUsage is the code of errors that blame what was sent. Works below a
// private directory of ours; the caller removes that directory when anything here fails.
// Calls take as long as the disk does. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class FileUnpacker {
 public:
  // Checks every name before anything is written. `shown_path` names the directory in errors.
  static Result<std::unique_ptr<FileUnpacker>> create(os::Fd directory, std::string shown_path,
                                                      std::vector<BundleFile> files,
                                                      std::string packed_sha256);
  ~FileUnpacker();
  FileUnpacker(const FileUnpacker&) = delete;
  FileUnpacker& operator=(const FileUnpacker&) = delete;

  Status write(std::string_view packed);
  // All announced bytes must be there. Symbolic links are made now: no file can pass through one.
  Status finish();

 private:
  struct Decoder;
  struct Hasher;

  FileUnpacker(os::Fd directory, std::string shown_path, std::vector<BundleFile> files,
               std::string packed_sha256);
  Status take(std::string_view bytes);
  Status open_next();
  Status close_file();
  Error io_error(int errnum, const char* action, const std::string& path) const;

  os::Fd directory_;
  std::string shown_path_;
  std::vector<BundleFile> files_;
  std::string packed_sha256_;
  std::size_t next_ = 0;  // index of the file to open next
  os::Fd file_;           // the one being written
  std::uint64_t left_ = 0;
  std::string last_parent_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Hasher> hasher_;
};

// The SHA-256 of some bytes in lower-case hex.
std::string sha256_of(std::string_view bytes);
// The SHA-256 of a file in lower-case hex; an Error if it cannot be read.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace hora::launcher
