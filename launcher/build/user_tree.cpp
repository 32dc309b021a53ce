// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/user_tree.h"

#include <dirent.h>
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
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "launcher/build/frame_packer.h"
#include "launcher/build/part_hash.h"
#include "launcher/build/sha256.h"
#include "launcher/build/tree_cut.h"
#include "launcher/protocol/frame.h"
#include "launcher/text/size.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostFiles = 500'000;
constexpr std::size_t kChunk = 1u << 20;
// Most of a tree is text and code, which this level makes small; on what is packed already it takes
// hardly more time than a lower one.
constexpr int kTreeLevel = 3;
constexpr unsigned kMostThreads = 8;

const std::set<std::string_view>& unwanted_folders() {
  static const std::set<std::string_view> names{".git", ".hg", ".svn", "__pycache__"};
  return names;
}

Result<std::vector<std::string>> names_in(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return errno_error(errno, "reading the folder " + path);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* item = ::readdir(folder.get());
    if (item == nullptr && errno != 0) return errno_error(errno, "reading the folder " + path);
    if (item == nullptr) return names;
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
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

// Lists a folder and all below it. Looks at names and sizes alone.
class Lister {
 public:
  explicit Lister(const TreeRoot& root) : root_(root) {}

  Status list(UserTree& tree, std::vector<PartFile>& files) {
    tree_ = &tree;
    files_ = &files;
    return list_folder("");
  }
  // By the names directly in the folder, for the message that it is too large.
  const std::map<std::string, std::uint64_t>& sizes() const { return sizes_; }

 private:
  Status list_folder(const std::string& inside) {
    const std::string path = inside.empty() ? root_.path : root_.path + "/" + inside;
    auto names = names_in(path);
    if (!names) return std::move(names).error();
    const std::size_t before = files_->size();
    for (const std::string& name : *names) HORA_TRY(list_entry(join_path(inside, name), name));
    if (files_->size() > kMostFiles) {
      return make_error(
          ErrorCode::kUsage,
          root_.path + " holds more than " + std::to_string(kMostFiles) +
              " files; send an archive of them, or use a folder that all hosts share");
    }
    // An empty folder is there because somebody will want it.
    if (files_->size() == before && !join_path(root_.prefix, inside).empty()) {
      add(inside, 0, S_IFDIR | 0755, {}, path);
    }
    return Ok{};
  }

  Status list_entry(const std::string& inside, const std::string& name) {
    const std::string path = root_.path + "/" + inside;
    if (inside.find('\n') != std::string::npos) {
      return make_error(ErrorCode::kUsage, "a name with a line break in " + root_.path);
    }
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return errno_error(errno, "looking at " + path);
    if (S_ISDIR(info.st_mode)) {
      return unwanted_folders().count(name) > 0 ? Status(Ok{}) : list_folder(inside);
    }
    if (S_ISLNK(info.st_mode)) return list_link(inside, path);
    if (!S_ISREG(info.st_mode)) {
      tree_->left_out.push_back(path + " (no file)");
      return Ok{};
    }
    add(inside, static_cast<std::uint64_t>(info.st_size), info.st_mode & 0777, {}, path);
    return Ok{};
  }

  // A link inside of the folder stays one. What another leads to is sent in its place, if it is a
  // file: hosts do not have it.
  Status list_link(const std::string& inside, const std::string& path) {
    std::array<char, PATH_MAX> text;
    const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
    if (length < 0) return errno_error(errno, "reading the link " + path);
    const std::string target(text.data(), static_cast<std::size_t>(length));
    if (stays_inside(inside, target)) {
      add(inside, 0, 0777, target, path);
      return Ok{};
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      add(inside, static_cast<std::uint64_t>(info.st_size), info.st_mode & 0777, {}, path);
    } else {
      tree_->left_out.push_back(path + " -> " + target);
    }
    return Ok{};
  }

  void add(const std::string& inside, std::uint64_t size, unsigned mode, const std::string& target,
           const std::string& path) {
    PartFile& added = files_->emplace_back();
    added.file.path = join_path(root_.prefix, inside);
    added.file.size_bytes = size;
    added.file.mode = static_cast<int>(mode);
    added.file.link_target = target;
    added.source = path;
    tree_->bytes += size;
    sizes_[inside.substr(0, inside.find('/'))] += size;
  }

  const TreeRoot& root_;
  UserTree* tree_ = nullptr;
  std::vector<PartFile>* files_ = nullptr;
  std::map<std::string, std::uint64_t> sizes_;
};

Error too_large(const UserTree& tree, std::uint64_t most,
                const std::map<std::string, std::uint64_t>& sizes) {
  const auto largest = std::max_element(
      sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = format_size(tree.bytes) + " are more than " + format_size(most);
  if (largest != sizes.end()) {
    text += "; " + largest->first + " alone has " + format_size(largest->second);
  }
  return make_error(ErrorCode::kUsage,
                    text + "; use a folder that all hosts share, or allow it with --ship-max-size");
}

// Passes on the contents of a file, piece by piece.
Status read_in_pieces(const std::string& path,
                      const std::function<Status(std::string_view)>& take) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  std::string chunk(kChunk, '\0');
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + path);
    if (got == 0) return Ok{};
    HORA_TRY(take({chunk.data(), static_cast<std::size_t>(got)}));
  }
}

bool has_contents(const PartFile& file) {
  return file.file.link_target.empty() && (file.file.mode & S_IFMT) == 0;
}

// What a part is called by must tell links and folders from files.
Status hash_file(PartFile& file) {
  Sha256 hash;
  std::uint64_t size = 0;
  if (!has_contents(file)) {
    hash.add(file.file.link_target.empty() ? "folder" : "link " + file.file.link_target);
  } else {
    HORA_TRY(read_in_pieces(file.source, [&](std::string_view piece) -> Status {
      hash.add(piece);
      size += piece.size();
      return Ok{};
    }));
  }
  // It grows or shrinks under our hands: what was read is what is sent.
  file.file.size_bytes = size;
  file.sha256 = hash.hex();
  return Ok{};
}

// By several threads: one hashes less than a disk can read.
Status hash_files(std::vector<PartFile>& files) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> failed;
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) {
      if (auto hashed = hash_file(files[i]); !hashed) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::move(hashed).error();
        next = files.size();
      }
    }
  };
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& each : threads) each.join();
  if (failed) return std::move(*failed);
  return Ok{};
}

// Two folders whose contents go to one place may have the same name in both.
Status check_names(const std::vector<PartFile>& files) {
  std::map<std::string_view, const PartFile*> seen;
  for (const PartFile& each : files) {
    const auto [known, added] = seen.emplace(each.file.path, &each);
    if (added) continue;
    return make_error(ErrorCode::kUsage, known->second->source + " and " + each.source +
                                             " would be one file on the hosts");
  }
  return Ok{};
}

}  // namespace

Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes) {
  UserTree tree;
  std::vector<PartFile> files;
  for (const TreeRoot& root : roots) {
    Lister lister(root);
    HORA_TRY(lister.list(tree, files));
    if (tree.bytes > most_bytes) {
      return too_large(tree, most_bytes, lister.sizes()).with_context(root.path);
    }
  }
  HORA_TRY(check_names(files));
  HORA_TRY(hash_files(files));
  for (std::vector<PartFile>& each : cut_tree(std::move(files))) {
    TreePart& part = tree.parts.emplace_back();
    part.hash = part_hash(each);
    part.files = std::move(each);
    for (const PartFile& file : part.files) part.bytes += file.file.size_bytes;
  }
  return tree;
}

Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part) {
  FramePacker packer(kTreeLevel);
  BundlePart header;
  header.hash = part.hash;
  for (const PartFile& listed : part.files) {
    header.files.push_back(listed.file);
    if (!has_contents(listed)) continue;
    Sha256 hash;
    HORA_TRY(read_in_pieces(listed.source, [&](std::string_view piece) -> Status {
      hash.add(piece);
      return packer.add(piece);
    }));
    if (hash.hex() != listed.sha256) {
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
