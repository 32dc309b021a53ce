// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/cache_clean.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <utility>

#include "launcher/protocol/delivery.h"
#include "launcher/store/bundle_cache.h"
#include "launcher/store/cache_choice.h"
#include "launcher/store/directories.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/addresses.h"

namespace hora::launcher {

// Marks say which process uses which cache entry, so that `clean` on one host does not remove what
// another host runs. A mark is an empty, locked directory; its name has all the information.

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
  std::string name = net::host_name().substr(0, kLongestHost);
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

// An entry is renamed before it is removed, so that a reader finds it whole or not at all, also if
// we are killed meanwhile. The next bundle or cleaning removes such debris.

namespace {

using Found = Result<std::optional<Use>>;

bool is_agent(std::string_view name) { return name.substr(0, kAgentPrefix.size()) == kAgentPrefix; }

std::string note_of(std::string_view sha256) { return std::string(kNotePrefix).append(sha256); }

bool is_entry(std::string_view name) {
  if (is_agent(name)) name.remove_prefix(kAgentPrefix.size());
  return is_hash(name);
}

// The entry is gone: a cleaner on another host was faster.
bool is_gone(int errnum) { return errnum == ENOENT || errnum == ESTALE; }

// What the choice needs to know about an entry, and what users want to see.
struct CleanedEntry {
  CacheItem item;
  std::optional<Use> use;
};

// As the manifest has it: to look at each file would take long over a network.
std::uint64_t bytes_of(const BundlePart& part) {
  std::uint64_t bytes = 0;
  for (const BundleFile& file : part.files) bytes += file.size_bytes;
  return bytes;
}

// A damaged bundle has no manifest: it counts with size 0, and its age decides.
std::vector<CachePiece> pieces_of(const CacheDirectory& directory, const std::string& name) {
  std::vector<CachePiece> pieces;
  if (!is_agent(name)) {
    for (const BundlePart& part : parts_of_entry(directory, name)) {
      pieces.push_back({part.hash, bytes_of(part)});
    }
    return pieces;
  }
  struct stat info {};
  if (::fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    pieces.push_back({name, static_cast<std::uint64_t>(info.st_size)});
  }
  return pieces;
}

// An agent's last use is at its note: the note holds the program's own times, which have to stay.
std::optional<time_t> last_use(const CacheDirectory& directory, const std::string& name) {
  auto used = directory.touched_at(name);
  if (!used || !is_agent(name)) return used;
  const auto noted = directory.touched_at(note_of(name.substr(kAgentPrefix.size())));
  return noted ? std::max(*used, *noted) : used;
}

// Skips entries that disappear meanwhile. Without users: see find_users().
Result<std::vector<CleanedEntry>> look_at(const CacheDirectory& directory) {
  const auto names = directory.names();
  if (!names) return names.error();
  // One clock for all entries, and one write to the directory. A directory without write permission
  // needs no exact time.
  const time_t now = directory.now().value_or(::time(nullptr));
  std::vector<CleanedEntry> entries;
  for (const std::string& name : *names) {
    if (!is_entry(name)) continue;
    const auto used = last_use(directory, name);
    if (!used) continue;
    CacheItem item{name, std::chrono::seconds(now - *used), pieces_of(directory, name), false};
    entries.push_back({std::move(item), std::nullopt});
  }
  return entries;
}

// Each takes a look at the marks of all hosts.
Status find_users(const CacheDirectory& directory, std::vector<CleanedEntry>& entries) {
  for (CleanedEntry& entry : entries) {
    auto use = use_of(directory, entry.item.name);
    if (!use) return std::move(use).error();
    entry.use = std::move(*use);
    entry.item.in_use = entry.use.has_value();
  }
  return Ok{};
}

// For the choice, which does not look at the users.
std::vector<CacheItem> items_of(const std::vector<CleanedEntry>& entries) {
  std::vector<CacheItem> items;
  for (const CleanedEntry& entry : entries) items.push_back(entry.item);
  return items;
}

const CleanedEntry& named(const std::vector<CleanedEntry>& entries, const std::string& name) {
  return *std::find_if(entries.begin(), entries.end(),
                       [&name](const CleanedEntry& entry) { return entry.item.name == name; });
}

// Coarse: minutes do not matter for an entry of a day ago. Clocks of other hosts may be ahead.
std::string age_text(std::chrono::seconds age) {
  const auto minutes = std::max<std::int64_t>(age.count(), 0) / 60;
  if (minutes < 120) return std::to_string(minutes) + " min ago";
  if (minutes < 48 * 60) return std::to_string(minutes / 60) + " h ago";
  return std::to_string(minutes / (24 * 60)) + " days ago";
}

std::string use_text(const Use& use) {
  std::string text = "in use on " + use.host;
  if (use.age_s) text += ", as it said " + age_text(std::chrono::seconds(*use.age_s));
  return text;
}

std::string kept_text(const CacheDirectory& directory, const std::string& name, const Use& use) {
  return "kept " + directory.entry_path(name) + ": " + use_text(use);
}

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

// A note is only a shortcut for verifying an agent. If that agent is here, the note also has its
// last use.
Status remove_notes(const CacheDirectory& directory) {
  const auto names = directory.names();
  if (!names) return names.error();
  for (const std::string& name : *names) {
    if (name.compare(0, kNotePrefix.size(), kNotePrefix) != 0) continue;
    const std::string agent = std::string(kAgentPrefix).append(name.substr(kNotePrefix.size(), 64));
    if (std::find(names->begin(), names->end(), agent) != names->end()) continue;
    HORA_TRY(remove_tree(directory.entry_path(name)));
  }
  return Ok{};
}

// The entries that `removed` has, and the bytes that each used alone: shared bytes count for the
// last one.
std::string removed_text(const std::string& path, const std::vector<CacheItem>& items,
                         const std::vector<std::string>& removed) {
  std::vector<CacheItem> left;
  std::copy_if(items.begin(), items.end(), std::back_inserter(left), [&](const CacheItem& item) {
    return std::find(removed.begin(), removed.end(), item.name) == removed.end();
  });
  return "removed " + counted(removed.size(), "entry") + " of " + path + ": " +
         format_size(total_bytes(items) - total_bytes(left));
}

// The agent that lists is not a user.
bool is_used(const CleanedEntry& entry) { return entry.use && entry.use->bundle != kCleaner; }

// Oldest use first. None where there is no directory.
Result<std::vector<CleanedEntry>> entries_by_use(const std::string& path) {
  const auto directory = CacheDirectory::open(path);
  if (!directory) {
    if (directory.error().code == ErrorCode::kNotFound) return std::vector<CleanedEntry>();
    return directory.error();
  }
  auto entries = look_at(*directory);
  if (!entries) return std::move(entries).error();
  HORA_TRY(find_users(*directory, *entries));
  std::sort(entries->begin(), entries->end(), [](const CleanedEntry& a, const CleanedEntry& b) {
    return b.item.unused < a.item.unused;
  });
  return entries;
}

// Others may be about to use it: then it is not empty, or they make it again.
Status remove_directory(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT) {
    return Ok{};
  }
  return errno_error(errno, "removing " + path);
}

}  // namespace

Result<std::vector<std::string>> clean_cache(const std::string& path, const CleanRequest& request) {
  std::vector<std::string> lines;
  auto directory = CacheDirectory::open(path);
  if (!directory) {
    if (directory.error().code == ErrorCode::kNotFound) return lines;
    return std::move(directory).error();
  }
  if (!request.dry_run && !request.in_passing) directory->remove_debris();
  auto entries = look_at(*directory);
  if (!entries) return std::move(entries).error();
  if (request.in_passing && choose_removals(items_of(*entries), request.limits).remove.empty()) {
    return lines;
  }
  HORA_TRY(find_users(*directory, *entries));
  const CacheChoice choice = choose_removals(items_of(*entries), request.limits);
  // Another cleaner is not worth a word, see the header.
  const auto report_kept = [&](const std::string& name, const std::optional<Use>& use) {
    if (use && use->bundle != kCleaner) lines.push_back(kept_text(*directory, name, *use));
  };
  for (const std::string& name : choice.kept) report_kept(name, named(*entries, name).use);
  std::vector<std::string> removed;
  for (const std::string& name : choice.remove) {
    if (request.dry_run) {
      const CacheItem& item = named(*entries, name).item;
      lines.push_back("would remove " + directory->entry_path(name) + ": " +
                      format_size(total_bytes({item})) + ", used " + age_text(item.unused));
      continue;
    }
    if (request.deadline && Clock::now() >= *request.deadline) return lines;
    // It may have come into use since; then it stays, and is reported like the others.
    auto use = remove_unused(*directory, name);
    if (!use) return std::move(use).error();
    report_kept(name, *use);
    if (!*use) removed.push_back(name);
  }
  if (request.dry_run) return lines;
  if (!removed.empty()) lines.push_back(removed_text(path, items_of(*entries), removed));
  HORA_TRY(remove_notes(*directory));
  if (!request.in_passing) HORA_TRY(remove_directory(path));
  return lines;
}

// For programs: bytes, seconds and whole paths, where people get columns.
Result<std::vector<std::string>> list_cache_as_json(const std::string& path,
                                                    const std::string& head) {
  const auto entries = entries_by_use(path);
  if (!entries) return entries.error();
  std::vector<std::string> lines;
  for (const CleanedEntry& entry : *entries) {
    std::string line =
        head + ",\"path\":" + json_text(path + "/" + entry.item.name) +
        ",\"bytes\":" + std::to_string(total_bytes({entry.item})) +
        ",\"unused_s\":" + std::to_string(std::max<std::int64_t>(entry.item.unused.count(), 0));
    if (is_used(entry)) line += ",\"in_use_on\":" + json_text(entry.use->host);
    lines.push_back(line + "}");
  }
  return lines;
}

Result<std::vector<std::string>> list_cache(const std::string& path) {
  const auto entries = entries_by_use(path);
  if (!entries) return entries.error();
  std::vector<std::string> lines;
  const auto add = [&lines](std::uint64_t bytes, const std::string& what,
                            const std::string& where) {
    char columns[96];
    std::snprintf(columns, sizeof columns, "%7s  %-16s  ", format_size(bytes).c_str(),
                  what.c_str());
    lines.push_back(columns + where);
  };
  for (const CleanedEntry& entry : *entries) {
    add(total_bytes({entry.item}),
        is_used(entry) ? use_text(*entry.use) : age_text(entry.item.unused),
        path + "/" + entry.item.name);
  }
  if (entries->empty()) return lines;
  std::uint64_t sum = 0;
  for (const CleanedEntry& entry : *entries) sum += total_bytes({entry.item});
  const std::uint64_t total = total_bytes(items_of(*entries));
  add(total, "total", path + (total < sum ? " (what entries share counts once)" : ""));
  return lines;
}

// One change of attributes for each, which a file server takes without a transfer; what is not
// there (yet) needs none.
void note_use(const CacheDirectory& directory, const std::string& agent_sha256,
              const std::string& bundle) {
  if (!agent_sha256.empty()) directory.touch(note_of(agent_sha256));
  if (!bundle.empty()) directory.touch(bundle);
}

}  // namespace hora::launcher
