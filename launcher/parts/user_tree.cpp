// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/user_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "launcher/parts/bundle.h"
#include "launcher/parts/hashes.h"
#include "launcher/parts/part_file.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/messages.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// More are a data set, or the wrong folder; hosts would make each of them by a system call or two.
constexpr std::size_t kMostFiles = 500'000;
constexpr std::string_view kCompiled = "__pycache__";

const std::set<std::string_view>& unwanted_folders() {
  static const std::set<std::string_view> names{".git", ".hg", ".svn", kCompiled};
  return names;
}

// Whether a link at `path`, relative to the folder that is sent, leads to a place inside of it.
// At each step, so that "../../x/.." does not leave and come back.
bool stays_inside(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/') return false;
  auto depth = std::count(path.begin(), path.end(), '/');
  while (!target.empty()) {
    const std::size_t slash = target.find('/');
    const std::string_view part = target.substr(0, slash);
    if (part == "..") {
      if (--depth < 0) return false;
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    target.remove_prefix(slash == std::string_view::npos ? target.size() : slash + 1);
  }
  return true;
}

std::string join_path(const std::string& folder, const std::string& name) {
  return folder.empty() || name.empty() ? folder + name : folder + "/" + name;
}

// Editors and programs make files and remove them all the time: what has gone since its folder was
// read does not travel, as if it had gone before.
bool is_gone(const Error& error) { return error.errnum == ENOENT; }

// Lists a folder and all below it. Looks at names and sizes alone.
class Lister {
 public:
  explicit Lister(const TreeRoot& root) : root_(root) {}

  Status list(TreeListing& listing) {
    listing_ = &listing;
    return list_folder("");
  }
  // By the names directly in the folder, for the error that it is too large.
  const std::map<std::string, std::uint64_t>& sizes() const { return sizes_; }

 private:
  Status list_folder(const std::string& inside) {
    const std::string path = inside.empty() ? root_.path : root_.path + "/" + inside;
    auto names = os::list_folder(path);
    if (!names && is_gone(names.error()) && !inside.empty()) return Ok{};
    if (!names) return std::move(names).error();
    const std::size_t before = listing_->files.size();
    for (const std::string& name : *names) HORA_TRY(list_entry(join_path(inside, name), name));
    if (listing_->files.size() > kMostFiles) {
      return make_error(
          ErrorCode::kUsage,
          root_.path + " holds more than " + std::to_string(kMostFiles) +
              " files; send an archive of them, or use a folder that all hosts share");
    }
    // An empty folder is kept because the program may need it.
    if (listing_->files.size() == before && !join_path(root_.prefix, inside).empty()) {
      add(inside, S_IFDIR | 0755, {}, path);
    }
    return Ok{};
  }

  Status list_entry(const std::string& inside, const std::string& name) {
    const std::string path = root_.path + "/" + inside;
    if (root_.skips && root_.skips(inside)) return Ok{};
    if (inside.find('\n') != std::string::npos) {
      return make_error(ErrorCode::kUsage, quote(path) +
                                               " has a line break in its name, which hosts cannot "
                                               "be reported; rename it");
    }
    HORA_TRY(check_interrupted());
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
      const Error error = errno_error(errno, "looking at " + path);
      return is_gone(error) ? Status(Ok{}) : error;
    }
    if (S_ISDIR(info.st_mode)) {
      const bool wanted =
          unwanted_folders().count(name) == 0 || (root_.keeps_compiled && name == kCompiled);
      return wanted ? list_folder(inside) : Status(Ok{});
    }
    if (S_ISLNK(info.st_mode)) return list_link(inside, path);
    if (!S_ISREG(info.st_mode)) {
      listing_->left_out.push_back(path + " (no file)");
      return Ok{};
    }
    add_file(inside, info, path);
    return Ok{};
  }

  // A link inside of the folder stays a link. The target of any other is sent instead, if it is a
  // file: hosts do not have it.
  Status list_link(const std::string& inside, const std::string& path) {
    std::array<char, PATH_MAX> text;
    const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
    if (length < 0) {
      const Error error = errno_error(errno, "reading the link " + path);
      return is_gone(error) ? Status(Ok{}) : error;
    }
    const std::string target(text.data(), static_cast<std::size_t>(length));
    if (stays_inside(inside, target)) {
      add(inside, 0777, target, path);
      return Ok{};
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      add_file(inside, info, path);
    } else {
      listing_->left_out.push_back(path + " -> " + target);
    }
    return Ok{};
  }

  PartFile& add(const std::string& inside, unsigned mode, const std::string& target,
                const std::string& path) {
    PartFile& added = listing_->files.emplace_back();
    added.file.path = join_path(root_.prefix, inside);
    added.file.mode = static_cast<int>(mode);
    added.file.link_target = target;
    added.source = path;
    return added;
  }

  void add_file(const std::string& inside, const struct stat& info, const std::string& path) {
    PartFile& added = add(inside, info.st_mode & 0777, {}, path);
    added.stamp = stamp_of(info);
    added.file.size_bytes = added.stamp.size_bytes;
    listing_->bytes += added.stamp.size_bytes;
    sizes_[inside.substr(0, inside.find('/'))] += added.stamp.size_bytes;
  }

  const TreeRoot& root_;
  TreeListing* listing_ = nullptr;
  std::map<std::string, std::uint64_t> sizes_;
};

Error too_large(const TreeListing& listing, std::uint64_t most,
                const std::map<std::string, std::uint64_t>& sizes) {
  const auto largest = std::max_element(
      sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = format_size(listing.bytes) + " are more than " + format_size(most);
  if (largest != sizes.end()) {
    text += "; " + largest->first + " alone has " + format_size(largest->second);
  }
  return make_error(ErrorCode::kUsage,
                    text + "; use a folder that all hosts share, or allow it with --ship-max-size");
}

}  // namespace

Result<TreeListing> list_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes) {
  TreeListing listing;
  for (const TreeRoot& root : roots) {
    Lister lister(root);
    HORA_TRY(lister.list(listing));
    if (listing.bytes > most_bytes) {
      return too_large(listing, most_bytes, lister.sizes()).with_context(root.path);
    }
  }
  return listing;
}

Status check_names(const TreeListing& listing) {
  std::map<std::string_view, const PartFile*> seen;
  for (const PartFile& each : listing.files) {
    const auto [known, added] = seen.emplace(each.file.path, &each);
    if (added) continue;
    return make_error(ErrorCode::kUsage, known->second->source + " and " + each.source +
                                             " would be one file on the hosts");
  }
  return Ok{};
}

namespace {

constexpr std::size_t kTreeChunk = 1u << 20;
// Most of a tree is text and code, which this level makes small; on what is packed already it takes
// hardly more time than a lower one.
constexpr int kTreeLevel = 3;
constexpr unsigned kMostThreads = 8;

// Passes on what hosts get of a file, piece by piece. `chunk` is a place to read to, as trees have
// many small files.
Status read_in_pieces(const PartFile& listed, std::string& chunk,
                      const std::function<Status(std::string_view)>& take) {
  const std::string& path = listed.source;
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  chunk.resize(kTreeChunk);
  if (!listed.head.empty()) HORA_TRY(take(listed.head));
  for (auto offset = static_cast<off_t>(listed.replaced);;) {
    const ssize_t got = ::pread(file.get(), chunk.data(), chunk.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + path);
    if (got == 0) return Ok{};
    offset += got;
    HORA_TRY(take({chunk.data(), static_cast<std::size_t>(got)}));
  }
}

bool has_contents(const PartFile& file) {
  return file.file.link_target.empty() && (file.file.mode & S_IFMT) == 0;
}

enum class Hashed : char {
  kSettled,    // what was read will not change without another stamp
  kUnsettled,  // it may
  kGone,       // since it was listed: as if it had gone before
};

// The name of a part must distinguish links and folders from files.
Result<Hashed> hash_file(PartFile& file, std::string& chunk) {
  Sha256 hash;
  if (!has_contents(file)) {
    hash.add(file.file.link_target.empty() ? "folder" : "link " + file.file.link_target);
    file.sha256 = hash.hex();
    return Hashed::kUnsettled;
  }
  const std::int64_t began_ns = file_clock_ns();
  std::uint64_t size = 0;
  const Status read = read_in_pieces(file, chunk, [&](std::string_view piece) -> Status {
    hash.add(piece);
    size += piece.size();
    return check_interrupted();
  });
  if (!read && read.error().errnum == ENOENT) return Hashed::kGone;
  if (!read) return read.error();
  // It grows or shrinks under our hands: what was read is what is sent.
  file.file.size_bytes = size;
  file.sha256 = hash.hex();
  struct stat after {};
  const bool settled = ::stat(file.source.c_str(), &after) == 0 && stamp_of(after) == file.stamp &&
                       is_settled(file.stamp, began_ns);
  return settled ? Hashed::kSettled : Hashed::kUnsettled;
}

// In several threads: one hashes slower than a disk can read.
Status hash_files(std::vector<PartFile>& files, TreeMemory& memory) {
  // Files that have not changed since an earlier launch are not opened.
  std::vector<PartFile*> unknown;
  for (PartFile& each : files) {
    if (!has_contents(each) || !memory.recall(each)) unknown.push_back(&each);
  }
  std::vector<Hashed> hashed(unknown.size(), Hashed::kUnsettled);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> failed;
  const auto work = [&] {
    std::string chunk;
    for (std::size_t i = next++; i < unknown.size(); i = next++) {
      auto result = hash_file(*unknown[i], chunk);
      if (result) {
        hashed[i] = *result;
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::move(result).error();
      next = unknown.size();
    }
  };
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& each : threads) each.join();
  if (failed) return std::move(*failed);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    if (hashed[i] == Hashed::kSettled) memory.learn(*unknown[i]);
  }
  // Those that were removed.
  std::erase_if(files, [](const PartFile& each) { return each.sha256.empty(); });
  memory.save(files);
  return Ok{};
}

}  // namespace

Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes,
                                TreeMemory& memory) {
  auto listing = list_tree(roots, most_bytes);
  if (!listing) return std::move(listing).error();
  HORA_TRY(check_names(*listing));
  return make_user_tree(std::move(*listing), memory);
}

Result<UserTree> make_user_tree(TreeListing listing, TreeMemory& memory) {
  HORA_TRY(hash_files(listing.files, memory));
  UserTree tree;
  tree.left_out = std::move(listing.left_out);
  for (std::vector<PartFile>& each : cut_tree(std::move(listing.files))) {
    TreePart& part = tree.parts.emplace_back();
    part.hash = part_hash(each);
    part.files = std::move(each);
    for (const PartFile& file : part.files) part.bytes += file.file.size_bytes;
    tree.bytes += part.bytes;
  }
  return tree;
}

Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part,
                                                            PackingState& state) {
  FramePacker packer(kTreeLevel);
  std::string chunk;
  BundlePart header;
  header.hash = part.hash;
  for (const PartFile& listed : part.files) {
    header.files.push_back(listed.file);
    if (!has_contents(listed)) continue;
    Sha256 hash;
    const Status read = read_in_pieces(listed, chunk, [&](std::string_view piece) -> Status {
      if (state.over) return make_error(ErrorCode::kFailed, "it is no longer needed");
      state.read_bytes += piece.size();
      hash.add(piece);
      return packer.add(piece);
    });
    const bool gone = !read && read.error().errnum == ENOENT;
    if (!read && !gone) return read.error();
    if (gone || hash.hex() != listed.sha256) {
      return make_error(ErrorCode::kFailed, listed.source +
                                                " has changed since horarun began; start the job "
                                                "when nothing writes to it");
    }
  }
  auto packed = packer.finish();
  if (!packed) return std::move(packed).error();
  header.packed_sha256 = std::move(packed->sha256);
  std::string frames = encode_frame(FrameType::kPart, encode(header));
  frames += packed->frames;
  return std::make_shared<const std::string>(std::move(frames));
}

}  // namespace hora::launcher
