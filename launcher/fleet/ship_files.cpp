// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/ship_files.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "launcher/build/bundle.h"
#include "launcher/build/environment_tree.h"
#include "launcher/text/few_names.h"
#include "launcher/text/size.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/paths.h"

namespace hora::launcher {

namespace {

// "src" comes as a folder of that name, "src/" and "." as what is in them.
TreeRoot root_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "." || name == "..") return {path, ""};
  return {name.empty() && path.size() > 1 ? path.substr(0, path.find_last_not_of('/') + 1) : path,
          name};
}

// A project often has its environment in it, which goes its own way.
std::function<bool(const std::string&)> not_the_environment(const std::string& root,
                                                            const PythonEnvironment& environment) {
  const std::string above = os::real_path(root) + "/";
  if (!environment.folder.starts_with(above)) return {};
  return [inside = environment.folder.substr(above.size())](const std::string& path) {
    return path == inside;
  };
}

// One line, however many there are.
void tell_left_out(const std::string& option, const std::vector<std::string>& left_out) {
  constexpr std::size_t kShown = 3;
  if (left_out.empty()) return;
  std::vector<std::string> shown = left_out;
  shown.resize(std::min(kShown, left_out.size()));
  std::string text = join(shown, ", ");
  if (left_out.size() > kShown) {
    text += " and " + std::to_string(left_out.size() - kShown) + " more";
  }
  os::log_warn("horarun", option + " leaves out what hosts could not use: " + text);
}

void tell_outside(const PythonEnvironment& environment) {
  if (environment.outside.empty()) return;
  os::log_warn("horarun", "--ship-env: hosts will lack what lies outside of " + environment.path +
                              ": " + few_names(environment.outside) +
                              "; install it there without -e, or send its folder with --ship and "
                              "add that to PYTHONPATH");
}

// Hosts could not keep it beside what other jobs leave there.
void tell_size(std::uint64_t bytes, const CacheLimits& limits) {
  if (!limits.max_bytes || bytes <= *limits.max_bytes) return;
  os::log_warn("horarun", "--ship-env: hosts keep its " + format_size(bytes) +
                              " until the next job without it ends, because --cache-max-size is " +
                              format_size(*limits.max_bytes));
}

}  // namespace

// The environment first: a project that is sent may hold it.
ShipFiles::ShipFiles(const JobSpec& spec, const std::string& memory_folder)
    : status_(pack_environment(spec, memory_folder)) {
  if (status_) status_ = pack(spec, memory_folder);
}

void ShipFiles::forget() const {
  for (const TreeMemory& each : memories_) each.forget();
}

Status ShipFiles::pack_environment(const JobSpec& spec, const std::string& memory_folder) {
  if (spec.ship_environment.empty()) return Ok{};
  auto environment = examine_environment(spec.ship_environment);
  if (!environment) return std::move(environment).error().with_context("--ship-env");
  memories_.emplace_back(memory_folder, "environment " + environment->folder);
  auto tree = read_environment_tree(*environment, memories_.back());
  if (!tree) return std::move(tree).error().with_context("--ship-env");
  tell_left_out("--ship-env", tree->left_out);
  tell_outside(*environment);
  tell_size(tree->bytes, spec.cache_limits);
  environment_ = std::move(*environment);
  environment_tree_ = std::move(*tree);
  return Ok{};
}

std::string ShipFiles::options() const {
  if (!environment_) return "--ship";
  return tree_.parts.empty() ? "--ship-env" : "--ship and --ship-env";
}

const TreePart* ShipFiles::find_part(const std::string& hash) const {
  for (const UserTree* tree : {&tree_, &environment_tree_}) {
    for (const TreePart& part : tree->parts) {
      if (part.hash == hash) return &part;
    }
  }
  return nullptr;
}

Status ShipFiles::pack(const JobSpec& spec, const std::string& memory_folder) {
  const std::vector<std::string>& paths = spec.ship_files;
  // A folder that has another place in the tree is another tree.
  std::string about;
  std::vector<TreeRoot> roots;
  for (const std::string& path : paths) {
    if (os::is_folder(path)) {
      roots.push_back(root_of(path));
      about += "folder " + os::real_path(path) + " " + roots.back().prefix + "\n";
      if (environment_) roots.back().skips = not_the_environment(path, *environment_);
      continue;
    }
    auto frames = ship_file_frames(path);
    if (!frames) return std::move(frames).error();
    frames_.push_back(std::make_shared<const std::string>(std::move(frames->head)));
    frames_.push_back(std::make_shared<const std::string>(std::move(frames->data)));
  }
  if (roots.empty()) return Ok{};
  memories_.emplace_back(memory_folder, about);
  auto tree = read_user_tree(roots, spec.ship_max_bytes, memories_.back());
  if (!tree) return std::move(tree).error().with_context("--ship");
  for (const TreePart& part : tree->parts) {
    for (const PartFile& file : part.files) {
      const std::string top = file.file.path.substr(0, file.file.path.find('/'));
      const auto same = std::find_if(paths.begin(), paths.end(), [&top](const std::string& path) {
        return !os::is_folder(path) && path.substr(path.rfind('/') + 1) == top;
      });
      if (same == paths.end()) continue;
      return make_error(ErrorCode::kUsage,
                        "--ship: " + *same + " and " + file.source + " have the same name");
    }
  }
  tell_left_out("--ship", tree->left_out);
  tree_ = std::move(*tree);
  return Ok{};
}

}  // namespace hora::launcher
