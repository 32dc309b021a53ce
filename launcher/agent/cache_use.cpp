// SPDX-License-Identifier: Apache-2.0
// Marks tell who uses which cache entry, so that `clean` on one host does not remove what another
// host runs. A mark is an empty, locked directory whose name says everything.
#include "launcher/agent/cache_use.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "launcher/agent/host_facts.h"
#include "launcher/agent/remove_tree.h"
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

// age_s is empty if a lock proves the use.
struct Use {
  std::string agent, bundle, host;
  std::optional<long> age_s;  // nothing: it is proven
};

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

using Found = Result<std::optional<Use>>;

// Finds who uses an entry. A user that the message must name comes first.
Found use_of(const CacheDirectory& directory, const std::string& entry) {
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

bool is_entry(std::string_view name) {
  if (name.substr(0, kAgentPrefix.size()) == kAgentPrefix) name.remove_prefix(kAgentPrefix.size());
  return is_hash(name);
}

std::string tell(const std::string& path, const Use& use) {
  std::string text = "kept " + path + ": in use on " + use.host;
  if (use.age_s) {
    text += ", as it said " + std::to_string(std::max(*use.age_s, 0L) / 60) + " min ago";
  }
  return text;
}

// The entry is gone: a cleaner on another host was faster.
bool is_gone(int errnum) { return errnum == ENOENT || errnum == ESTALE; }

// Returns nothing when the entry is gone. An agent sets its mark first and looks for the entry
// afterwards; this function removes the name first and looks for marks afterwards. So at least one
// of the two sees the other.
Found remove_unused(const CacheDirectory& directory, const std::string& name) {
  if (auto use = use_of(directory, name); !use || *use) return use;
  const std::string path = directory.entry_path(name);
  os::Fd entry(::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!entry.valid() || ::fstat(entry.get(), &info) != 0) {
    if (is_gone(errno)) return std::optional<Use>();
    return errno_error(errno, "opening " + path);
  }
  const bool is_directory = S_ISDIR(info.st_mode);
  // The entry may have to come back, so its temporary copy must not look like old debris: lock it
  // where possible, and set its time to now.
  if (is_directory) (void)::flock(entry.get(), LOCK_EX | LOCK_NB);
  (void)::futimens(entry.get(), nullptr);
  const std::string aside =
      directory.temporary_name(is_directory ? kIncomingPrefix : kShippedPrefix);
  if (::renameat(directory.fd(), name.c_str(), directory.fd(), aside.c_str()) != 0) {
    if (is_gone(errno)) return std::optional<Use>();
    return errno_error(errno, "removing " + path);
  }
  auto use = use_of(directory, name);
  // If the entry was shipped again meanwhile, the rename back fails (or replaces equal bytes); the
  // new copy is used.
  if ((!use || *use) &&
      ::renameat(directory.fd(), aside.c_str(), directory.fd(), name.c_str()) == 0) {
    return use;
  }
  HORA_TRY(remove_tree(directory.entry_path(aside)));
  return use;
}

}  // namespace

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

Result<std::vector<std::string>> clean_cache(const std::string& path) {
  std::vector<std::string> kept;
  auto directory = CacheDirectory::open(path);
  if (!directory) {
    if (directory.error().code == ErrorCode::kNotFound) return kept;
    return std::move(directory).error();
  }
  directory->remove_debris();
  const auto names = directory->names();
  if (!names) return names.error();
  for (const std::string& name : *names) {
    const std::string whole = directory->entry_path(name);
    // A note is only a shortcut for verifying an agent; it can always be removed.
    if (name.compare(0, kNotePrefix.size(), kNotePrefix) == 0) {
      HORA_TRY(remove_tree(whole));
      continue;
    }
    if (!is_entry(name)) continue;
    const auto use = remove_unused(*directory, name);
    if (!use) return std::move(use).error();
    if (*use && (*use)->bundle != kCleaner) kept.push_back(tell(whole, **use));
  }
  // The directory itself goes when nothing else is in it.
  if (::rmdir(path.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT) {
    return errno_error(errno, "removing " + path);
  }
  return kept;
}

}  // namespace hora::launcher
