// SPDX-License-Identifier: Apache-2.0
// A double of NCCL for ranks of one host; see README.md. HORA_DOUBLE_OLD_NCCL: of NCCL 2.8, without
// later functions.
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/kernels/elements.h"
#include "collectives/kernels/kernels.h"
#include "device.h"

using namespace hora::collectives;

namespace {

constexpr int kMostRanks = 16;
constexpr std::size_t kMailBytes = 256 * 1024;
#ifdef HORA_DOUBLE_OLD_NCCL
constexpr int kVersion = 2804;
constexpr bool kHasBfloat16 = false;
constexpr ncclResult_t kPeerIsGone = ncclSystemError;
#else
constexpr int kVersion = NCCL_VERSION_CODE;
constexpr bool kHasBfloat16 = true;
constexpr ncclResult_t kPeerIsGone = ncclRemoteError;
#endif

// A stream of bytes from one rank to another: a ring with one writer and one reader.
struct Mail {
  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> taken;
  char bytes[kMailBytes];
};

// In shared memory, zeroes at first.
struct Meeting {
  std::atomic<int> joined;
  std::atomic<bool> left[kMostRanks];  // by ncclCommDestroy
  std::atomic<int> device[kMostRanks];
  Mail mail[kMostRanks][kMostRanks];  // [from][to]
};

// Reduce and broadcast are messages here: everything goes through rank 0 of the communicator or the
// root, in rank order, so that the sum is the same everywhere.
struct Transfer {
  int peer;
  bool sends;
  char* data;
  std::size_t bytes;
  std::size_t done = 0;
};

}  // namespace

struct ncclComm {
  int rank = 0;
  int size = 0;
  std::string name;
  Meeting* meeting = nullptr;
  int file = -1;  // of the meeting; each rank keeps a byte of it locked as long as it lives
  std::atomic<bool> aborted{false};
  std::atomic<int> running{0};
  std::atomic<bool> ready{false};
};

namespace {

struct Call {
  ncclComm_t communicator;
  CUstream stream;
  std::function<void(ncclComm&)> work;  // a collective
  std::vector<Transfer> transfers;      // or messages
};
thread_local int depth = 0;
thread_local std::vector<Call> calls;

// Moves what can be moved; false when nothing can.
bool advance(ncclComm& self, Transfer& transfer) {
  const auto mine = static_cast<std::size_t>(self.rank);
  const auto other = static_cast<std::size_t>(transfer.peer);
  Mail& mail = transfer.sends ? self.meeting->mail[mine][other] : self.meeting->mail[other][mine];
  const std::uint64_t written = mail.written.load(std::memory_order_acquire);
  const std::uint64_t taken = mail.taken.load(std::memory_order_acquire);
  const std::size_t left = transfer.bytes - transfer.done;
  const std::size_t possible = transfer.sends ? kMailBytes - (written - taken) : written - taken;
  const std::size_t at = (transfer.sends ? written : taken) % kMailBytes;
  const std::size_t count = std::min({left, possible, kMailBytes - at});
  if (count == 0) return false;
  if (transfer.sends) {
    std::memcpy(mail.bytes + at, transfer.data + transfer.done, count);
    mail.written.store(written + count, std::memory_order_release);
  } else {
    std::memcpy(transfer.data + transfer.done, mail.bytes + at, count);
    mail.taken.store(taken + count, std::memory_order_release);
  }
  transfer.done += count;
  return true;
}

// All of them side by side. Between two ranks messages go in order, so only the first unfinished
// one of each direction may move.
void exchange(ncclComm& self, std::vector<Transfer> transfers) {
  int idle = 0;
  while (!self.aborted) {
    bool moved = false;
    bool open = false;
    bool busy[kMostRanks][2] = {};
    for (Transfer& each : transfers) {
      if (each.done == each.bytes) continue;
      open = true;
      bool& taken = busy[each.peer][each.sends ? 1 : 0];
      if (taken) continue;
      taken = true;
      moved = advance(self, each) || moved;
    }
    if (!open) return;
    idle = moved ? 0 : idle + 1;
    if (idle > 20) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (idle > 0) {
      sched_yield();
    }
  }
}

void send(ncclComm& self, int peer, const void* data, std::size_t bytes) {
  exchange(self, {{peer, true, static_cast<char*>(const_cast<void*>(data)), bytes}});
}
void receive(ncclComm& self, int peer, void* data, std::size_t bytes) {
  exchange(self, {{peer, false, static_cast<char*>(data), bytes}});
}

hora_dtype dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return HORA_INT8;
    case ncclInt32:
      return HORA_INT32;
    case ncclInt64:
      return HORA_INT64;
    case ncclFloat16:
      return HORA_FLOAT16;
    case ncclFloat32:
      return HORA_FLOAT32;
    case ncclFloat64:
      return HORA_FLOAT64;
    case ncclBfloat16:
      return HORA_BFLOAT16;
    default:
      return HORA_UINT8;
  }
}

struct Reduction {
  hora_reduce_op op;
  double factor;  // of this rank's input, before the sum; it is an element of the dtype
};

// Operators of ncclRedOpCreatePreMulSum() that were not destroyed.
struct Product {
  ncclComm_t communicator;
  ncclDataType_t type;
  double factor;
};
std::mutex products_mutex;
std::map<int, Product> products;

// None: no such operator, or one of another communicator or type.
std::optional<Reduction> reduction_of(ncclRedOp_t op, ncclDataType_t type, ncclComm_t of) {
  if (type == ncclBfloat16 && !kHasBfloat16) return std::nullopt;
  switch (op) {
    case ncclMin:
      return Reduction{HORA_MIN, 1};
    case ncclMax:
      return Reduction{HORA_MAX, 1};
    case ncclProd:
      return Reduction{HORA_PRODUCT, 1};
    case ncclSum:
      return Reduction{HORA_SUM, 1};
    default:
      break;
  }
  const std::lock_guard<std::mutex> lock(products_mutex);
  const auto found = products.find(op);
  if (found == products.end()) return std::nullopt;
  const Product& product = found->second;
  if (product.type != type || product.communicator != of) return std::nullopt;
  return Reduction{HORA_SUM, product.factor};
}

void reduce(ncclComm& self, const void* from, void* to, std::size_t count, ncclDataType_t type,
            const Reduction& how, int root) {
  const hora_dtype dtype = dtype_of(type);
  const auto elements = static_cast<std::int64_t>(count);
  const std::size_t bytes = count * dtype_bytes(dtype);
  std::vector<char> mine(bytes);
  std::memcpy(mine.data(), from, bytes);
  // The factor has no more digits than the dtype, so this rounds as a multiplication in the dtype.
  apply_scale(mine.data(), elements, dtype, how.factor, 1);
  if (self.rank != root) return send(self, root, mine.data(), bytes);
  std::vector<char> sum(bytes);
  std::vector<char> next(bytes);
  for (int rank = 0; rank < self.size && !self.aborted; ++rank) {
    std::vector<char>& target = rank == 0 ? sum : next;
    if (rank == root) {
      target = mine;
    } else {
      receive(self, rank, target.data(), bytes);
    }
    if (rank > 0) {
      reduce_function(dtype, how.op)(sum.data(), sum.data(), next.data(), elements);
    }
  }
  if (!self.aborted) std::memcpy(to, sum.data(), bytes);
}

void broadcast(ncclComm& self, const void* from, void* to, std::size_t bytes, int root) {
  if (self.rank != root) return receive(self, root, to, bytes);
  // A piece to each and then the next, so that no rank is done long before another.
  char* const data = static_cast<char*>(const_cast<void*>(from));
  for (std::size_t at = 0; at < bytes && !self.aborted; at += kMailBytes) {
    std::vector<Transfer> pieces;
    for (int rank = 0; rank < self.size; ++rank) {
      if (rank != root) pieces.push_back({rank, true, data + at, std::min(kMailBytes, bytes - at)});
    }
    exchange(self, std::move(pieces));
  }
  if (to != from) std::memmove(to, from, bytes);
}

// As NCCL has it among its constants.
#define HORA_TEXT_OF(x) #x
#define HORA_TEXT(x) HORA_TEXT_OF(x)
__attribute__((used)) const char kBannerText[] = "NCCL version " HORA_TEXT(
    NCCL_MAJOR) "." HORA_TEXT(NCCL_MINOR) "." HORA_TEXT(NCCL_PATCH) "+cuda11.0";

std::atomic<int> started_calls{0};
std::atomic<bool> broken{false};

ncclResult_t start(Call call) {
  ncclComm& self = *call.communicator;
  ++started_calls;
  ++self.running;
  const auto stream = call.stream;
  hora::gpu_double::enqueue(stream, [&self, call = std::move(call)] {
    if (call.work) {
      call.work(self);
    } else {
      exchange(self, call.transfers);
    }
    --self.running;
  });
  return ncclSuccess;
}

ncclResult_t give(Call call) {
  if (!call.communicator->ready) return ncclInvalidUsage;
  // Messages of a group are one call: they need each other.
  if (!call.work && !calls.empty() && !calls.back().work) {
    calls.back().transfers.push_back(call.transfers.front());
  } else {
    calls.push_back(std::move(call));
  }
  if (depth > 0) return ncclSuccess;
  std::vector<Call> given;
  given.swap(calls);
  for (Call& each : given) start(std::move(each));
  return ncclSuccess;
}

bool lock(const ncclComm& self, int command, int rank, struct flock& of) {
  of.l_type = F_WRLCK;
  of.l_whence = SEEK_SET;
  of.l_start = rank;
  of.l_len = 1;
  return fcntl(self.file, command, &of) == 0;
}

// It has died, or has broken off: its connections are closed.
bool is_gone(const ncclComm& self, int rank) {
  struct flock found = {};
  return rank != self.rank && !self.meeting->left[rank] && lock(self, F_OFD_GETLK, rank, found) &&
         found.l_type == F_UNLCK && !self.meeting->left[rank];
}

// Where there are several, two ranks on one are a mistake, as they are to NCCL.
bool shares_its_device(const ncclComm& self) {
  bool shares = false;
  for (int rank = 0; rank < self.size && hora::gpu_double::device_count() > 1; ++rank) {
    shares = shares ||
             (rank != self.rank && self.meeting->device[rank] == self.meeting->device[self.rank]);
  }
  return shares;
}

// Not complete before all have come.
ncclResult_t come_to_meeting(ncclComm_t* out, int size, const ncclUniqueId& id, int rank) {
  if (size > kMostRanks || hora::gpu_double::current_device() < 0) return ncclInvalidArgument;
  auto* const self = new ncclComm;
  self->rank = rank;
  self->size = size;
  self->name = id.internal;
  const int fd = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Meeting)) != 0) return ncclSystemError;
  void* const memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  struct flock alive = {};
  self->file = fd;
  if (memory == MAP_FAILED || !lock(*self, F_OFD_SETLK, rank, alive)) return ncclSystemError;
  self->meeting = static_cast<Meeting*>(memory);
  self->meeting->device[rank] = hora::gpu_double::current_device();
  self->meeting->joined.fetch_add(1);
  *out = self;
  return ncclSuccess;
}

bool is_complete(ncclComm& self) {
  if (!self.ready && self.meeting->joined.load() == self.size) {
    shm_unlink(self.name.c_str());  // all have it
    self.ready = true;
  }
  return self.ready;
}

using hora::gpu_double::expect_device_memory;

}  // namespace

extern "C" {

// Of this process; for tests.
int hora_double_started() { return started_calls; }
// From now on its communicators say, when they are asked, that something has failed.
void hora_double_break() { broken = true; }

ncclResult_t ncclGetVersion(int* version) {
  const char* const wanted = std::getenv("HORA_DOUBLE_NCCL");
  *version = wanted == nullptr ? kVersion : std::atoi(wanted);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  if (result == kPeerIsGone) return "a remote process has exited";
  return result == ncclInvalidUsage ? "invalid usage" : "an error of the double";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/hora-nccl-double-%d-%d", getpid(), made++);
  return ncclSuccess;
}

#ifndef HORA_DOUBLE_OLD_NCCL
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;
  const ncclResult_t come = come_to_meeting(out, size, id, rank);
  return come == ncclSuccess ? ncclInProgress : come;
}
#endif

// Blocks, and a rank that does not come makes it block for ever.
ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  const ncclResult_t come = come_to_meeting(out, size, id, rank);
  while (come == ncclSuccess && !is_complete(**out)) sched_yield();
  return come;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t self, ncclResult_t* state) {
  *state = is_complete(*self) ? ncclSuccess : ncclInProgress;
  for (int rank = 0; self->ready && rank < self->size; ++rank) {
    if (is_gone(*self, rank)) *state = kPeerIsGone;
  }
  if (self->ready && broken) *state = ncclSystemError;
  if (self->ready && shares_its_device(*self)) *state = ncclInvalidUsage;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t self) {
  self->aborted = true;
  while (self->running > 0) sched_yield();
  shm_unlink(self->name.c_str());
  munmap(self->meeting, sizeof(Meeting));
  close(self->file);
  delete self;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t self) {
  self->meeting->left[self->rank] = true;
  return ncclCommAbort(self);
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  std::vector<Call> given;
  given.swap(calls);
  for (Call& each : given) start(std::move(each));
  return ncclSuccess;
}

#ifndef HORA_DOUBLE_OLD_NCCL
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t where, ncclComm_t communicator) {
  if (where != ncclScalarHostImmediate || !communicator->ready) return ncclInvalidArgument;
  static int made = ncclNumOps;
  const std::lock_guard<std::mutex> lock(products_mutex);
  products[made] = {communicator, type, read_element(scalar, dtype_of(type), 0)};
  *op = static_cast<ncclRedOp_t>(made++);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t communicator) {
  const std::lock_guard<std::mutex> lock(products_mutex);
  const auto found = products.find(op);
  if (found == products.end() || found->second.communicator != communicator) {
    return ncclInvalidArgument;
  }
  products.erase(found);
  return ncclSuccess;
}
#endif

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(from, bytes, "ncclAllReduce's source");
  expect_device_memory(to, bytes, "ncclAllReduce's target");
  const auto how = reduction_of(op, type, communicator);
  if (!how) return ncclInvalidArgument;
  return give({communicator,
               stream,
               [=](ncclComm& self) {
                 reduce(self, from, to, count, type, *how, 0);
                 broadcast(self, to, to, bytes, 0);
               },
               {}});
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(from, bytes, "ncclReduce's source");
  if (communicator->rank == root) expect_device_memory(to, bytes, "ncclReduce's target");
  const auto how = reduction_of(op, type, communicator);
  if (!how) return ncclInvalidArgument;
  return give({communicator,
               stream,
               [=](ncclComm& self) { reduce(self, from, to, count, type, *how, root); },
               {}});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(from, bytes * static_cast<std::size_t>(communicator->size),
                       "ncclReduceScatter's source");
  expect_device_memory(to, bytes, "ncclReduceScatter's target");
  const auto how = reduction_of(op, type, communicator);
  if (!how) return ncclInvalidArgument;
  return give({communicator,
               stream,
               [=](ncclComm& self) {
                 for (int root = 0; root < self.size; ++root) {
                   reduce(self,
                          static_cast<const char*>(from) + static_cast<std::size_t>(root) * bytes,
                          to, count, type, *how, root);
                 }
               },
               {}});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  if (communicator->rank == root) expect_device_memory(from, bytes, "ncclBroadcast's source");
  expect_device_memory(to, bytes, "ncclBroadcast's target");
  return give(
      {communicator, stream, [=](ncclComm& self) { broadcast(self, from, to, bytes, root); }, {}});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(from, bytes, "ncclAllGather's source");
  expect_device_memory(to, bytes * static_cast<std::size_t>(communicator->size),
                       "ncclAllGather's target");
  return give({communicator,
               stream,
               [=](ncclComm& self) {
                 for (int root = 0; root < self.size; ++root) {
                   broadcast(self, from,
                             static_cast<char*>(to) + static_cast<std::size_t>(root) * bytes, bytes,
                             root);
                 }
               },
               {}});
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(data, bytes, "ncclSend");
  return give({communicator,
               stream,
               nullptr,
               {{peer, true, static_cast<char*>(const_cast<void*>(data)), bytes}}});
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * dtype_bytes(dtype_of(type));
  expect_device_memory(data, bytes, "ncclRecv");
  return give({communicator, stream, nullptr, {{peer, false, static_cast<char*>(data), bytes}}});
}

}  // extern "C"
