// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/meeting.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace hora::collectives::nccl {

namespace {

// What a rank brings: the version of its NCCL, and the first rank an id for each stream, or none if
// it could make none.
struct Brought {
  std::int32_t version = 0;
  std::vector<ncclUniqueId> ids;

  std::string packed() const {
    std::string bytes(reinterpret_cast<const char*>(&version), sizeof version);
    return bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
  }
  static Brought unpack(const void* bytes, std::size_t length) {
    Brought brought;
    if (length < sizeof brought.version) return brought;
    std::memcpy(&brought.version, bytes, sizeof brought.version);
    brought.ids.resize((length - sizeof brought.version) / sizeof(ncclUniqueId));
    if (!brought.ids.empty()) {
      std::memcpy(brought.ids.data(), static_cast<const char*>(bytes) + sizeof brought.version,
                  brought.ids.size() * sizeof brought.ids[0]);
    }
    return brought;
  }
};

}  // namespace

bool exchange_ids(const GroupContext& group, const Nccl& library, std::vector<ncclUniqueId>& ids,
                  ErrorText& error) {
  constexpr int kMostStreams = 16;
  Brought mine;
  mine.version = library.version;
  if (group.index == 0) {
    const char* const wanted = group.services->setting("HOROVOD_NUM_NCCL_STREAMS");
    const int streams = wanted == nullptr ? 1 : std::clamp(std::atoi(wanted), 1, kMostStreams);
    for (int i = 0; i < streams; ++i) {
      const ncclResult_t made = library.ncclGetUniqueId(&mine.ids.emplace_back());
      if (!check(library, made, "ncclGetUniqueId", nullptr, error)) mine.ids.clear();
      if (mine.ids.empty()) break;
    }
  }
  const std::string packed = mine.packed();
  const void* const* theirs = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(packed.data(), packed.size(), false, &theirs, &lengths, error)) {
    return false;
  }
  const Brought first = Brought::unpack(theirs[0], lengths[0]);
  // Ranks of two versions read each other's messages wrongly; NCCL notices that itself since 2.23.
  for (int index = 1; index < group.size; ++index) {
    const Brought other = Brought::unpack(theirs[index], lengths[index]);
    if (other.version == first.version) continue;
    return error.set(
        "rank %d has NCCL %s and rank %d has %s, and NCCL needs one version everywhere; "
        "HORA_NCCL=ship in the environment of horarun sends one to all hosts",
        group.ranks[0], version_text(first.version).c_str(), group.ranks[index],
        version_text(other.version).c_str());
  }
  // The first rank has its own error text already.
  if (first.ids.empty()) {
    return group.index == 0 ? false : error.set("the first rank has no NCCL id");
  }
  ids = first.ids;
  return true;
}

}  // namespace hora::collectives::nccl
