// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/tree_memory.h"

#include <utility>

#include "launcher/build/sha256.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kPrefix = "tree-";
// As many files as a tree may have.
constexpr MemoryLimits kLimits{256u << 20, 500'000};

}  // namespace

TreeMemory::TreeMemory(std::string folder, std::string_view about)
    : folder_(std::move(folder)),
      name_(std::string(kPrefix) + sha256_hex(about).substr(0, 16)),
      entries_(read_stamped_hashes(folder_, name_, kLimits)) {}

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
