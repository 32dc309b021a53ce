// SPDX-License-Identifier: Apache-2.0
// Paths in a bundle come from the network. None of them, and no link, may lead out of the directory
// that the bundle is unpacked into.
#include "launcher/store/safe_path.h"
#include <string>

namespace hora::launcher {

namespace {

Error refused(std::string_view path, const char* why) {
  return make_error(ErrorCode::kUsage, "the path '" + std::string(path) + "' " + why);
}

}  // namespace

Status check_relative_path(std::string_view path) {
  constexpr std::size_t kLongest = 4000;
  if (path.empty()) return refused(path, "is empty");
  if (path.size() > kLongest) return refused(path.substr(0, 80), "... is too long");
  if (path.find('\0') != std::string_view::npos) return refused("", "holds a NUL byte");
  if (path.front() == '/') return refused(path, "is absolute");
  std::string_view rest = path;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    // An empty part or "." would give one file two names.
    if (part.empty() || part == ".") return refused(path, "has an empty part");
    if (part == "..") return refused(path, "leads outside");
    if (slash == std::string_view::npos) return Ok{};
    rest.remove_prefix(slash + 1);
  }
}

Status check_link_target(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) {
    return refused(path, "links to an absolute or empty place");
  }
  // The depth of the directory where the link is, below the root.
  int depth = 0;
  for (const char c : path) depth += c == '/';
  while (!target.empty()) {
    const std::size_t slash = target.find('/');
    const std::string_view part = target.substr(0, slash);
    // The depth is checked at each step, so "../../x/.." cannot leave and come back.
    if (part == "..") {
      if (--depth < 0) return refused(path, "links outside");
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    target.remove_prefix(slash == std::string_view::npos ? target.size() : slash + 1);
  }
  return Ok{};
}

}  // namespace hora::launcher
