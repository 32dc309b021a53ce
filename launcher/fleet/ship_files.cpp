// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/ship_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "launcher/build/bundle.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// "src" comes as a folder of that name, "src/" and "." as what is in them.
TreeRoot root_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "." || name == "..") return {path, ""};
  return {name.empty() && path.size() > 1 ? path.substr(0, path.find_last_not_of('/') + 1) : path,
          name};
}

// One line, however many there are.
void tell_left_out(const std::vector<std::string>& left_out) {
  constexpr std::size_t kShown = 3;
  if (left_out.empty()) return;
  const std::vector<std::string> shown(left_out.begin(),
                                       left_out.begin() + std::min(kShown, left_out.size()));
  std::string text = join(shown, ", ");
  if (left_out.size() > kShown) {
    text += " and " + std::to_string(left_out.size() - kShown) + " more";
  }
  os::log_warn("horarun", "--ship leaves out what hosts could not use: " + text);
}

}  // namespace

ShipFiles::ShipFiles(const std::vector<std::string>& paths, std::uint64_t most_bytes)
    : status_(pack(paths, most_bytes)) {}

Status ShipFiles::pack(const std::vector<std::string>& paths, std::uint64_t most_bytes) {
  std::vector<TreeRoot> roots;
  for (const std::string& path : paths) {
    if (is_folder(path)) {
      roots.push_back(root_of(path));
      continue;
    }
    auto frames = ship_file_frames(path);
    if (!frames) return std::move(frames).error();
    frames_.push_back(std::make_shared<const std::string>(std::move(*frames)));
  }
  if (roots.empty()) return Ok{};
  auto tree = read_user_tree(roots, most_bytes);
  if (!tree) return std::move(tree).error().with_context("--ship");
  for (const TreePart& part : tree->parts) {
    for (const PartFile& file : part.files) {
      const std::string top = file.file.path.substr(0, file.file.path.find('/'));
      const auto same = std::find_if(paths.begin(), paths.end(), [&top](const std::string& path) {
        return !is_folder(path) && path.substr(path.rfind('/') + 1) == top;
      });
      if (same == paths.end()) continue;
      return make_error(ErrorCode::kUsage,
                        "--ship: " + *same + " and " + file.source + " have the same name");
    }
  }
  tell_left_out(tree->left_out);
  tree_ = std::move(*tree);
  return Ok{};
}

}  // namespace hora::launcher
