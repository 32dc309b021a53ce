// SPDX-License-Identifier: Apache-2.0
// One text file, a line for each file, replaced as a whole: whoever saves at the same time loses
// the other's lines at worst, and those are learnt again. Only a folder that is its owner's alone
// is believed. A wrong line could make no host run anything but what is packed from this machine's
// files, and packing compares; but it would make jobs fail.
#include "launcher/build/known_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/build/sha256.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/atomic_file.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kName = "/hashes";
constexpr std::string_view kHeader = "hora-hashes-1";
constexpr std::size_t kLargest = 4u << 20;
constexpr std::size_t kMostEntries = 4096;
constexpr std::size_t kHexDigits = 64;
// A file that was written within one tick of its file system's clock may change once more without
// another time. Linux counts in steps of up to 10 ms; file systems without fractions in seconds,
// or two.
constexpr std::int64_t kFineTick = 100'000'000;
constexpr std::int64_t kCoarseTick = 3'000'000'000;
constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

std::optional<FileStamp> stamp_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileStamp{info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
                   nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

bool is_settled(const FileStamp& stamp, std::int64_t now) {
  const std::int64_t last = std::max(stamp.modified_ns, stamp.changed_ns);
  return now - last > (last % kSecond == 0 ? kCoarseTick : kFineTick);
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// The folder, if it belongs to us alone: not a link, and nobody else may write or read there.
os::Fd open_folder(const std::string& folder, bool make) {
  if (folder.empty()) return {};
  if (make && ::mkdir(folder.c_str(), 0700) != 0 && errno == ENOENT) {
    // ~/.cache itself may be missing.
    (void)::mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0700);
    (void)::mkdir(folder.c_str(), 0700);
  }
  os::Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!opened.valid() || ::fstat(opened.get(), &info) != 0 || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    return {};
  }
  return opened;
}

}  // namespace

std::string launcher_memory_folder(const EnvironmentList& environment) {
  std::string home;
  std::string cache;
  for (const auto& [name, value] : environment) {
    if (name == "HOME") home = value;
    if (name == "XDG_CACHE_HOME") cache = value;
  }
  if (cache.empty() && !home.empty()) cache = home + "/.cache";
  // A relative path would depend on the working directory.
  return cache.substr(0, 1) == "/" ? cache + "/hora-launcher" : std::string();
}

KnownHashes::KnownHashes(std::string folder)
    : folder_(std::move(folder)), entries_(read_entries(folder_)) {}

KnownHashes::Entries KnownHashes::read_entries(const std::string& folder) {
  Entries entries;
  const os::Fd directory = open_folder(folder, /*make=*/false);
  if (!directory.valid()) return entries;
  const os::Fd file(
      ::openat(directory.get(), kName.data() + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return entries;
  }
  const auto text = os::read_to_end(file.get(), folder, kLargest);
  if (!text) return entries;
  const auto lines = split(*text, '\n');
  if (lines.empty() || lines.front() != kHeader) return entries;
  for (std::size_t i = 1; i < lines.size() && entries.size() < kMostEntries; ++i) {
    // SHA256 DEVICE INODE SIZE MODIFIED CHANGED PATH; a path may have blanks.
    std::string_view rest = lines[i];
    std::string_view words[6];
    for (std::string_view& word : words) {
      const std::size_t blank = std::min(rest.find(' '), rest.size());
      word = rest.substr(0, blank);
      rest.remove_prefix(std::min(blank + 1, rest.size()));
    }
    Entry entry;
    entry.sha256 = words[0];
    if (rest.substr(0, 1) != "/" || entry.sha256.size() != kHexDigits ||
        entry.sha256.find_first_not_of("0123456789abcdef") != std::string::npos ||
        !parse_number(words[1], entry.stamp.device) || !parse_number(words[2], entry.stamp.inode) ||
        !parse_number(words[3], entry.stamp.size_bytes) ||
        !parse_number(words[4], entry.stamp.modified_ns) ||
        !parse_number(words[5], entry.stamp.changed_ns)) {
      continue;
    }
    entries.insert_or_assign(std::string(rest), std::move(entry));
  }
  return entries;
}

Result<FileHash> KnownHashes::of(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  const auto before = stamp_of(file.get());
  if (!before) return make_error(ErrorCode::kFailed, path + " is no file");
  for (const Entries* known : {&learnt_, &entries_}) {
    const auto found = known->find(path);
    if (found == known->end() || found->second.stamp != *before) continue;
    return FileHash{before->size_bytes, found->second.sha256};
  }
  const std::int64_t began_ns = now_ns();
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
  Entry entry{*before, hash.hex()};
  const FileHash answer{size, entry.sha256};
  // What changed while it was read is not known by either of its states.
  if (stamp_of(file.get()) == before && size == before->size_bytes &&
      is_settled(*before, began_ns) && path.find('\n') == std::string::npos && path[0] == '/') {
    learnt_.insert_or_assign(path, std::move(entry));
  }
  return answer;
}

void KnownHashes::save() {
  if (learnt_.empty()) return;
  const os::Fd directory = open_folder(folder_, /*make=*/true);
  if (!directory.valid()) return;
  // Read again: another launcher may have saved meanwhile.
  Entries all = learnt_;
  for (auto& [path, entry] : read_entries(folder_)) {
    if (all.size() < kMostEntries) all.try_emplace(path, std::move(entry));
  }
  std::string text = std::string(kHeader) + "\n";
  for (const auto& [path, entry] : all) {
    const FileStamp& stamp = entry.stamp;
    text += entry.sha256 + " " + std::to_string(stamp.device) + " " + std::to_string(stamp.inode) +
            " " + std::to_string(stamp.size_bytes) + " " + std::to_string(stamp.modified_ns) + " " +
            std::to_string(stamp.changed_ns) + " " + path + "\n";
  }
  auto file = os::AtomicFile::make(folder_ + std::string(kName), 0600);
  if (!file || !file->write(text)) return;
  (void)file->finish();
}

void KnownHashes::forget(const std::string& folder) {
  const os::Fd directory = open_folder(folder, /*make=*/false);
  if (directory.valid()) (void)::unlinkat(directory.get(), kName.data() + 1, 0);
}

}  // namespace hora::launcher
