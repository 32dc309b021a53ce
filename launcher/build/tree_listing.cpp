// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/tree_listing.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "launcher/process/signals.h"
#include "launcher/text/size.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// More are a data set, or the wrong folder; hosts would make each of them by a system call or two.
constexpr std::size_t kMostFiles = 500'000;
constexpr std::string_view kCompiled = "__pycache__";

const std::set<std::string_view>& unwanted_folders() {
  static const std::set<std::string_view> names{".git", ".hg", ".svn", kCompiled};
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
  // By the names directly in the folder, for the message that it is too large.
  const std::map<std::string, std::uint64_t>& sizes() const { return sizes_; }

 private:
  Status list_folder(const std::string& inside) {
    const std::string path = inside.empty() ? root_.path : root_.path + "/" + inside;
    auto names = names_in(path);
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
    // An empty folder is there because somebody will want it.
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
                                               "be told; rename it");
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

  // A link inside of the folder stays one. What another leads to is sent in its place, if it is a
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

}  // namespace hora::launcher
