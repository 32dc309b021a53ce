// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/communicator.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/backends/nccl/gpu.h"

namespace hora::collectives::nccl {

namespace {

using BusId = std::array<char, 16>;  // "0000:3b:00.0", and zeros

// The contribution of a rank: the version of its NCCL, the GPUs that it may use, and the first rank
// an id for each stream, or none if it could make none.
struct Contribution {
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
  static Contribution unpack(const void* bytes, std::size_t length) {
    Contribution brought;
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

// As NCCL compares them. Empty where the driver does not report it.
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
bool has_gpu_for_each(const GroupContext& group, const std::vector<Contribution>& all,
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
  Contribution mine;
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
  std::vector<Contribution> all;
  for (int index = 0; index < group.size; ++index) {
    all.push_back(Contribution::unpack(theirs[index], lengths[index]));
  }
  const Contribution& first = all.front();
  // Ranks of two versions read each other's messages wrongly; NCCL notices that itself since 2.23.
  for (int index = 1; index < group.size; ++index) {
    const Contribution& other = all[static_cast<std::size_t>(index)];
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

// A non-blocking communicator: each call returns ncclInProgress and continues in NCCL's threads.
// settle() polls until it has finished, so that an abort or a deadline can end the wait.
// NCCL before 2.14 has none. There joining blocks, which a thread does in our place; the calls of
// an operation block until the GPU has them, and settle() finds that they have ended.

namespace {

constexpr const char* kJoining = "waiting for all ranks to make an NCCL communicator";

// Shared with a thread that may outlive the wait for it.
struct Joining {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  ncclResult_t result = ncclInternalError;
  ncclComm_t communicator = nullptr;
};

}  // namespace

std::unique_ptr<NcclCommunicator> NcclCommunicator::join(const Nccl& nccl, const Gpu& gpu,
                                                         const ncclUniqueId& id, int rank, int size,
                                                         const std::atomic<bool>& aborted,
                                                         std::chrono::milliseconds timeout,
                                                         ErrorText& error) {
  std::unique_ptr<NcclCommunicator> self(new NcclCommunicator(nccl, aborted));
  const Clock::time_point deadline = Clock::now() + timeout;
  const bool joined = nccl.ncclCommInitRankConfig == nullptr
                          ? self->join_in_a_thread(gpu, id, rank, size, deadline, error)
                          : self->join_at_once(id, rank, size, deadline, error);
  if (joined) return self;
  // Destroying a communicator that is not complete would wait for the missing ranks.
  self->break_off();
  return nullptr;
}

bool NcclCommunicator::join_at_once(const ncclUniqueId& id, int rank, int size,
                                    Clock::time_point deadline, ErrorText& error) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl_.ncclCommInitRankConfig(&communicator_, size, id, rank, &config);
  return check(nccl_, result, "ncclCommInitRankConfig", nullptr, error) &&
         settle(kJoining, deadline, error);
}

// Nothing ends the call of an old NCCL before all ranks have come. So if that is too late, the
// thread is abandoned, with what it may still make: the rank has failed, and its process ends.
bool NcclCommunicator::join_in_a_thread(const Gpu& gpu, const ncclUniqueId& id, int rank, int size,
                                        Clock::time_point deadline, ErrorText& error) {
  const auto joining = std::make_shared<Joining>();
  std::thread([joining, id, rank, size, init = nccl_.ncclCommInitRank, &cuda = gpu.cuda(),
               context = gpu.context()] {
    const Gpu::Current current(cuda, context);
    ncclComm_t made = nullptr;
    const ncclResult_t result = init(&made, size, id, rank);
    const std::lock_guard<std::mutex> lock(joining->mutex);
    joining->result = result;
    joining->communicator = made;
    joining->has_ended = true;
    joining->ended.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(joining->mutex);
  while (!joining->has_ended) {
    if (aborted_.load(std::memory_order_relaxed))
      return error.set("%s: the job is ending", kJoining);
    if (Clock::now() > deadline) {
      return error.set("%s: timed out waiting for the other ranks", kJoining);
    }
    // The aborting thread does not notify.
    joining->ended.wait_for(lock, std::chrono::milliseconds(10));
  }
  communicator_ = joining->communicator;
  return check(nccl_, joining->result, "ncclCommInitRank", nullptr, error);
}

// A regular destruction is collective; after an abort no other rank takes part.
NcclCommunicator::~NcclCommunicator() {
  if (communicator_ == nullptr) return;
  if (aborted_) {
    break_off();
  } else {
    nccl_.ncclCommDestroy(communicator_);
  }
}

bool NcclCommunicator::settle(const char* what, Clock::time_point deadline, ErrorText& error) {
  for (int round = 0;; ++round) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.ncclCommGetAsyncError(communicator_, &state);
    if (!check(nccl_, asked, what, communicator_, error)) return false;
    if (state != ncclInProgress) return check(nccl_, state, what, communicator_, error);
    if (aborted_.load(std::memory_order_relaxed)) return error.set("%s: the job is ending", what);
    // Operations have no deadline: an abort ends their wait.
    if (Clock::now() > deadline)
      return error.set("%s: timed out waiting for the other ranks", what);
    // Yield at first; a slow call must not occupy a core.
    if (round < 1000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

bool NcclCommunicator::group(const char* what, const Calls& calls, ErrorText& error) {
  // A call on a failed communicator would report its old error under a new name.
  if (!is_healthy(error)) return false;
  if (!check(nccl_, nccl_.ncclGroupStart(), what, communicator_, error)) return false;
  const ncclResult_t given = calls(communicator_);
  // Every ncclGroupStart() needs its end, even after a failed call.
  const ncclResult_t ended = nccl_.ncclGroupEnd();
  return check(nccl_, given, what, communicator_, error) &&
         check(nccl_, ended, what, communicator_, error) &&
         settle(what, Clock::time_point::max(), error);
}

bool NcclCommunicator::is_healthy(ErrorText& error) {
  if (communicator_ == nullptr || aborted_) return error.set("the job is ending");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.ncclCommGetAsyncError(communicator_, &state);
  return check(nccl_, asked, "ncclCommGetAsyncError", communicator_, error) &&
         check(nccl_, state, "NCCL", communicator_, error);
}

void NcclCommunicator::break_off() {
  if (communicator_ == nullptr) return;
  nccl_.ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

}  // namespace hora::collectives::nccl
