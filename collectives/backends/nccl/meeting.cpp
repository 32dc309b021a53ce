// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/meeting.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "collectives/backends/nccl/shared_gpus.h"

namespace hora::collectives::nccl {

namespace {

using BusId = std::array<char, 16>;  // "0000:3b:00.0", and zeros

// What a rank brings: the version of its NCCL, the GPUs that it may use, and the first rank an id
// for each stream, or none if it could make none.
struct Brought {
  std::int32_t version = 0;
  std::vector<BusId> gpus;
  std::vector<ncclUniqueId> ids;

  std::string packed() const {
    const auto count = static_cast<std::int32_t>(gpus.size());
    std::string bytes(reinterpret_cast<const char*>(&version), sizeof version);
    bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
    bytes.append(reinterpret_cast<const char*>(gpus.data()), gpus.size() * sizeof gpus[0]);
    return bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
  }
  static Brought unpack(const void* bytes, std::size_t length) {
    Brought brought;
    std::string_view rest(static_cast<const char*>(bytes), length);
    std::int32_t count = 0;
    if (rest.size() < sizeof brought.version + sizeof count) return brought;
    std::memcpy(&brought.version, rest.data(), sizeof brought.version);
    std::memcpy(&count, rest.data() + sizeof brought.version, sizeof count);
    rest.remove_prefix(sizeof brought.version + sizeof count);
    const std::size_t most = rest.size() / sizeof(BusId);
    fill(brought.gpus, std::min(static_cast<std::size_t>(std::max(count, 0)), most), rest);
    fill(brought.ids, rest.size() / sizeof(ncclUniqueId), rest);
    return brought;
  }

 private:
  template <typename T>
  static void fill(std::vector<T>& items, std::size_t count, std::string_view& bytes) {
    items.resize(count);
    if (count > 0) std::memcpy(items.data(), bytes.data(), count * sizeof(T));
    bytes.remove_prefix(count * sizeof(T));
  }
};

// As NCCL compares them. Empty where the driver does not tell.
std::vector<BusId> own_gpus(const Cuda& driver) {
  std::vector<BusId> gpus;
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return {};
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    BusId& id = gpus.emplace_back();
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
        driver.cuDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device) !=
            CUDA_SUCCESS) {
      return {};
    }
  }
  return gpus;
}

// False, with the reason: at least two ranks have to use the same GPU.
bool has_gpu_for_each(const GroupContext& group, const std::vector<Brought>& all,
                      ErrorText& error) {
  std::vector<std::vector<std::string>> gpus(all.size());
  for (std::size_t place = 0; place < all.size(); ++place) {
    for (const BusId& id : all[place].gpus) {
      gpus[place].emplace_back(id.data(), strnlen(id.data(), id.size()));
    }
  }
  const std::vector<int> sharing = ranks_that_share({group.hosts, gpus.size()}, gpus);
  if (sharing.empty()) return true;
  const auto& theirs = gpus[static_cast<std::size_t>(sharing.front())];
  return error.set("ranks %d and %d share GPU %s%s, and NCCL needs one for each rank",
                   group.ranks[sharing.front()], group.ranks[sharing.back()],
                   theirs.front().c_str(), theirs.size() > 1 ? " and others" : "");
}

}  // namespace

bool exchange_ids(const GroupContext& group, const Cuda& driver, const Nccl& library,
                  std::vector<ncclUniqueId>& ids, ErrorText& error) {
  constexpr int kMostStreams = 16;
  Brought mine;
  mine.version = library.version;
  mine.gpus = own_gpus(driver);
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
  std::vector<Brought> all;
  for (int index = 0; index < group.size; ++index) {
    all.push_back(Brought::unpack(theirs[index], lengths[index]));
  }
  const Brought& first = all.front();
  // Ranks of two versions read each other's messages wrongly; NCCL notices that itself since 2.23.
  for (int index = 1; index < group.size; ++index) {
    const Brought& other = all[static_cast<std::size_t>(index)];
    if (other.version == first.version) continue;
    return error.set(
        "rank %d has NCCL %s and rank %d has %s, and NCCL needs one version everywhere; "
        "HORA_NCCL=ship in the environment of horarun sends one to all hosts",
        group.ranks[0], version_text(first.version).c_str(), group.ranks[index],
        version_text(other.version).c_str());
  }
  if (!has_gpu_for_each(group, all, error)) return false;
  // The first rank has its own error text already.
  if (first.ids.empty()) {
    return group.index == 0 ? false : error.set("the first rank has no NCCL id");
  }
  ids = first.ids;
  return true;
}

}  // namespace hora::collectives::nccl
