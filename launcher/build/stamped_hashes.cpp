// SPDX-License-Identifier: Apache-2.0
// One text file, a line for each file, replaced as a whole: whoever saves at the same time loses
// the other's lines at worst, and those are learnt again. Only a folder that is its owner's alone
// is believed. A wrong line could make no host run anything but what is packed from this machine's
// files, and packing compares; but it would make jobs fail.
#include "launcher/build/stamped_hashes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/os/atomic_file.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/own_folder.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kHeader = "hora-hashes-1";
constexpr std::size_t kHexDigits = 64;
// A file that was written within one tick of its file system's clock may change once more without
// another time. Linux counts in steps of up to 10 ms; file systems without fractions in seconds,
// or two.
constexpr std::int64_t kFineTick = 100'000'000;
constexpr std::int64_t kCoarseTick = 3'000'000'000;
constexpr std::int64_t kSecond = 1'000'000'000;

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::int64_t file_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

bool is_settled(const FileStamp& stamp, std::int64_t now_ns) {
  const std::int64_t last = std::max(stamp.modified_ns, stamp.changed_ns);
  return now_ns - last > (last % kSecond == 0 ? kCoarseTick : kFineTick);
}

StampedHashes read_stamped_hashes(const std::string& folder, const std::string& name,
                                  const MemoryLimits& limits) {
  StampedHashes entries;
  const auto text = os::read_own_file(folder, name, limits.bytes);
  if (!text) return entries;
  const auto lines = split(*text, '\n');
  if (lines.empty() || lines.front() != kHeader) return entries;
  for (std::size_t i = 1; i < lines.size() && entries.size() < limits.entries; ++i) {
    // SHA256 DEVICE INODE SIZE MODIFIED CHANGED PATH; a path may have blanks.
    std::string_view rest = lines[i];
    std::string_view words[6];
    for (std::string_view& word : words) {
      const std::size_t blank = std::min(rest.find(' '), rest.size());
      word = rest.substr(0, blank);
      rest.remove_prefix(std::min(blank + 1, rest.size()));
    }
    StampedHash entry;
    entry.sha256 = words[0];
    if (rest.empty() || entry.sha256.size() != kHexDigits ||
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

void write_stamped_hashes(const std::string& folder, const std::string& name,
                          const StampedHashes& entries) {
  const os::Fd directory = os::open_own_folder(folder, /*make=*/true);
  if (!directory.valid()) return;
  std::string text = std::string(kHeader) + "\n";
  for (const auto& [path, entry] : entries) {
    const FileStamp& stamp = entry.stamp;
    text += entry.sha256 + " " + std::to_string(stamp.device) + " " + std::to_string(stamp.inode) +
            " " + std::to_string(stamp.size_bytes) + " " + std::to_string(stamp.modified_ns) + " " +
            std::to_string(stamp.changed_ns) + " " + path + "\n";
  }
  auto file = os::AtomicFile::make(folder + "/" + name, 0600);
  if (!file || !file->write(text)) return;
  (void)file->finish();
}

void remove_stamped_hashes(const std::string& folder, const std::string& name) {
  const os::Fd directory = os::open_own_folder(folder, /*make=*/false);
  if (directory.valid()) (void)::unlinkat(directory.get(), name.c_str(), 0);
}

void remove_old_stamped_hashes(const std::string& folder, const std::string& prefix) {
  constexpr std::int64_t kOld = 30 * 86'400 * kSecond;
  const os::Fd directory = os::open_own_folder(folder, /*make=*/false);
  const std::unique_ptr<DIR, int (*)(DIR*)> items(
      directory.valid() ? ::opendir(folder.c_str()) : nullptr, ::closedir);
  while (const dirent* item = items ? ::readdir(items.get()) : nullptr) {
    struct stat info {};
    if (std::string_view(item->d_name).substr(0, prefix.size()) != prefix ||
        ::fstatat(directory.get(), item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        file_clock_ns() - stamp_of(info).modified_ns < kOld) {
      continue;
    }
    // Another launcher may have been quicker.
    (void)::unlinkat(directory.get(), item->d_name, 0);
  }
}

}  // namespace hora::launcher
