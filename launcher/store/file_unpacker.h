// SPDX-License-Identifier: Apache-2.0
// Writes the files that a launcher sends as one zstd frame, and checks the files of a part of a
// bundle.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The files of a part of a bundle, below a private directory of ours. Calls take as long as the
// file system does.

// No path, and no link, may lead out of the directory. Errors: kUsage.
Status check_paths(const std::vector<BundleFile>& files);

// The folders that `path` needs. Files come in order of their paths, so most share the folder of
// the one before, `last_parent`.
Status make_parents(int directory, const std::string& shown_path, const std::string& path,
                    std::string& last_parent);

mode_t permissions_of(const BundleFile& file);

bool is_folder(const BundleFile& file);
// An existing one is as good.
Status make_folder(int directory, const std::string& shown_path, const BundleFile& file);

// Presence, type and size, not contents: those were checked on arrival, and reading them at each
// start would cost more than it protects from.
bool are_whole(int directory, const std::vector<BundleFile>& files);

// Puts the files of `from` into `to` as well: by hard links, or by copies where the file system, or
// its being another one, allows no link.
Status adopt_files(int from, int to, const std::string& shown_path,
                   const std::vector<BundleFile>& files);

// The same by copies, for a directory that the ranks may write to. Shares the blocks where the file
// system can.
Status copy_files(int from, int to, const std::string& shown_path,
                  const std::vector<BundleFile>& files);

// Writes the files that a launcher sends as one zstd frame: sizes and the frame's SHA-256 must be
// those that were announced; kUsage is the code of errors in the received data. Works below a
// private directory of ours; the caller removes that directory when anything here fails. Calls take
// as long as the disk does. One thread at a time.
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

// Decides which names a launcher may create below the agent's directories.

// Relative, '/'-separated, without empty, "." or ".." parts and without NUL: it cannot lead out.
Status check_relative_path(std::string_view path);

// Whether a symbolic link at `path`, as above, that holds `target` stays inside the tree.
Status check_link_target(std::string_view path, std::string_view target);

}  // namespace hora::launcher
