// SPDX-License-Identifier: Apache-2.0
// Marks tell who uses which cache entry, so that `clean` on one host does not remove what another
// host runs. A mark is an empty, locked directory whose name says everything.
#include "launcher/agent/cache_use.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/agent/host_facts.h"
#include "launcher/protocol/part_list.h"

namespace hora::launcher {

namespace {

// A mark's name is PREFIX PLACE-WORD-AGENT-BUNDLE-HOST. All parts except the host have a fixed
// size.
constexpr std::string_view kNone = "----------------";
constexpr std::size_t kLongestHost = 64;

std::string part(std::string_view hash) {
  return std::string(hash.size() < kTagSize ? kNone : hash.substr(0, kTagSize));
}

std::string host_part() {
  // A host name with a slash would make a path of the mark.
  std::string name = host_name().substr(0, kLongestHost);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// Splits by position, since the host part may contain dashes.
std::optional<Use> read_mark(std::string_view name) {
  constexpr std::size_t kStep = kTagSize + 1;
  if (name.substr(0, kUsePrefix.size()) != kUsePrefix) return std::nullopt;
  name.remove_prefix(kUsePrefix.size());
  if (name.size() <= 4 * kStep) return std::nullopt;
  return Use{std::string(name.substr(2 * kStep, kTagSize)),
             std::string(name.substr(3 * kStep, kTagSize)), std::string(name.substr(4 * kStep)),
             std::nullopt};
}

}  // namespace

Result<std::optional<Use>> use_of(const CacheDirectory& directory, const std::string& entry) {
  const bool is_agent = entry.compare(0, kAgentPrefix.size(), kAgentPrefix) == 0;
  const std::string wanted =
      part(std::string_view(entry).substr(is_agent ? kAgentPrefix.size() : 0));
  std::optional<Use> cleaner;
  const auto names = directory.names();
  if (!names) return names.error();
  for (const std::string& name : *names) {
    auto use = read_mark(name);
    if (!use || (is_agent ? use->agent : use->bundle) != wanted) continue;
    const auto owner = directory.owner_of(name);
    if (owner.gone) continue;
    if (!owner.here) use->age_s = owner.age_s.value_or(0);
    if (use->bundle != kCleaner) return use;
    // On this host and through the same mount, a program keeps running after its name is removed
    // (as ours does), so a cleaner counts as a user only on another host, where the file server
    // might remove the bytes.
    if (!owner.here) cleaner = std::move(use);
  }
  return cleaner;
}

Result<UseMark> UseMark::make(const CacheDirectory& directory, std::string_view agent,
                              std::string_view bundle,
                              std::function<Status(const std::string&)> announce) {
  auto held = directory.make_held(
      kUsePrefix, "-" + part(agent) + "-" + part(bundle) + "-" + host_part(), announce);
  if (!held) return std::move(held).error();
  return UseMark(directory.entry_path(held->name), std::move(held->lock), std::move(announce));
}

UseMark::UseMark(UseMark&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      announce_(std::move(other.announce_)) {}

// A mark that cannot be removed is left to the shim, which knows its path from the announcement.
UseMark::~UseMark() {
  if (path_.empty()) return;
  if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) (void)announce_("");
}

// Another host judges the mark by its age alone.
void UseMark::renew() const { (void)::futimens(lock_.get(), nullptr); }

}  // namespace hora::launcher
