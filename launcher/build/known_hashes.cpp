// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/known_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/build/sha256.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

constexpr char kName[] = "hashes";
constexpr MemoryLimits kLimits{4u << 20, 4096};

std::optional<FileStamp> stamp_of_open(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return stamp_of(info);
}

}  // namespace

KnownHashes::KnownHashes(std::string folder)
    : folder_(std::move(folder)), entries_(read_stamped_hashes(folder_, kName, kLimits)) {}

Result<FileHash> KnownHashes::of(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  const auto before = stamp_of_open(file.get());
  if (!before) return make_error(ErrorCode::kFailed, path + " is no file");
  for (const StampedHashes* known : {&learnt_, &entries_}) {
    const auto found = known->find(path);
    if (found == known->end() || found->second.stamp != *before) continue;
    return FileHash{before->size_bytes, found->second.sha256};
  }
  const std::int64_t began_ns = file_clock_ns();
  Sha256 hash;
  std::vector<char> chunk(256 * 1024);
  std::uint64_t size = 0;
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + path);
    if (got == 0) break;
    hash.add({chunk.data(), static_cast<std::size_t>(got)});
    size += static_cast<std::uint64_t>(got);
  }
  read_bytes_ += size;
  StampedHash entry{*before, hash.hex()};
  const FileHash answer{size, entry.sha256};
  // What changed while it was read is not known by either of its states.
  if (stamp_of_open(file.get()) == before && size == before->size_bytes &&
      is_settled(*before, began_ns) && path.find('\n') == std::string::npos && path[0] == '/') {
    learnt_.insert_or_assign(path, std::move(entry));
  }
  return answer;
}

void KnownHashes::save() {
  if (learnt_.empty()) return;
  // Read again: another launcher may have saved meanwhile.
  StampedHashes all = learnt_;
  for (auto& [path, entry] : read_stamped_hashes(folder_, kName, kLimits)) {
    if (all.size() < kLimits.entries) all.try_emplace(path, std::move(entry));
  }
  write_stamped_hashes(folder_, kName, all);
}

void KnownHashes::forget(const std::string& folder) { remove_stamped_hashes(folder, kName); }

}  // namespace hora::launcher
