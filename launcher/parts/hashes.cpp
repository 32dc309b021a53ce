// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <sha256.h>  // libmd

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

struct Sha256::State {
  SHA2_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256Init(&state_->context); }

Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  SHA256Update(&state_->context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

std::string Sha256::hex() {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
  SHA256End(&state_->context, text.data());
  return text.data();
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

// The same lines as scripts/cmake/bundle hashes for the parts of the build
// (docs/reference/bundle.md), so that a part is identified by its content: two launchers whose
// machines have the same package send it to a host once.

std::string part_hash(std::vector<PartFile>& files) {
  std::sort(files.begin(), files.end(),
            [](const PartFile& a, const PartFile& b) { return a.file.path < b.file.path; });
  std::string lines;
  for (const PartFile& each : files) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%04o %llu ", static_cast<unsigned>(each.file.mode),
                  static_cast<unsigned long long>(each.file.size_bytes));
    lines += numbers + each.sha256 + " " + each.file.path + "\n";
  }
  return sha256_hex(lines);
}

// One text file, a line for each file, replaced as a whole: a concurrent save loses the other's
// lines at worst, and those are computed again. Only a folder that is its owner's alone is trusted.
// A wrong line could not make a host run anything but what is packed from this machine's files,
// since packing compares; but it would make jobs fail.

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
  if (!directory.valid()) return;
  for (const std::string& name : os::names_in(folder)) {
    struct stat info {};
    if (!name.starts_with(prefix) ||
        ::fstatat(directory.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        file_clock_ns() - stamp_of(info).modified_ns < kOld) {
      continue;
    }
    // Another launcher may have been quicker.
    (void)::unlinkat(directory.get(), name.c_str(), 0);
  }
}

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
  if (!before) return make_error(ErrorCode::kFailed, path + " is not a file");
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

namespace {

constexpr std::string_view kPrefix = "tree-";
// As many files as a tree may have.
constexpr MemoryLimits kTreeLimits{256u << 20, 500'000};

}  // namespace

TreeMemory::TreeMemory(std::string folder, std::string_view about)
    : folder_(std::move(folder)),
      name_(std::string(kPrefix) + sha256_hex(about).substr(0, 16)),
      entries_(read_stamped_hashes(folder_, name_, kTreeLimits)) {}

bool TreeMemory::recall(PartFile& file) const {
  const auto found = entries_.find(file.file.path);
  if (found == entries_.end() || found->second.stamp != file.stamp) return false;
  file.sha256 = found->second.sha256;
  // `head` and `replaced` follow from the file and from its place, by which this memory is called.
  file.file.size_bytes = file.stamp.size_bytes + file.head.size() - file.replaced;
  return true;
}

void TreeMemory::learn(const PartFile& file) {
  learnt_ = true;
  entries_.insert_or_assign(file.file.path, StampedHash{file.stamp, file.sha256});
}

void TreeMemory::save(const std::vector<PartFile>& files) {
  if (!learnt_) return;
  // Files that are gone go from here as well.
  StampedHashes kept;
  for (const PartFile& each : files) {
    auto known = entries_.extract(each.file.path);
    if (!known.empty()) kept.insert(std::move(known));
  }
  write_stamped_hashes(folder_, name_, kept);
  remove_old_stamped_hashes(folder_, std::string(kPrefix));
}

void TreeMemory::forget() const { remove_stamped_hashes(folder_, name_); }

}  // namespace hora::launcher
