// SPDX-License-Identifier: Apache-2.0
// The border between the runtime and what moves tensors.  [interface]
//
// A backend is either linked into libhora or a module that is loaded on demand (it brings a
// vendor's library and that library's own C++ runtime). So nothing of the standard library crosses
// this line: only plain data, pointers with a length, and interfaces whose functions neither throw
// nor allocate for the other side. Each side destroys its own objects (destroy()).
//
// A backend implements one of two interfaces:
//   Backend    whole collectives on a process set                    self, shm, mpi, ccl, nccl
//   PeerLinks  bytes from rank to rank; the runtime's own algorithms
//              (collectives/algorithms) make collectives of them     tcp, gloo
//
// One thread at a time calls these functions, except abort(), which any thread may call.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "hora/hora.h"

namespace hora::collectives {

inline constexpr std::uint32_t kBorderVersion = 10;

// The caller's place for an error: never allocates, always terminated.
struct ErrorText {
  char text[768] = {};
  bool own = false;             // the failure began in this rank, as far as its library knows
  std::int32_t unreached = -1;  // the rank that no connection came about with

  // Returns false, so that a failing function can `return error.set(...)`.
  __attribute__((format(printf, 2, 3))) bool set(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return false;
  }
};

// Learns what a step is doing, for the timeline. It copies the name; activities may be nested.
class Activities {
 public:
  virtual void begin(const char* name) noexcept = 0;
  virtual void end() noexcept = 0;

 protected:
  ~Activities() = default;
};

// For a rank that has joined and has no tensor: the device that it used last.
inline constexpr std::int32_t kOwnDevice = -2;

// One tensor of a step. input == output: in place.
struct Piece {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;  // elements: of the input; equal to the output's for allreduce, broadcast
  void* stream = nullptr;  // GPU: the input is ready once this stream has done its work so far
};

// One operation that the whole process set executes now. Counts are elements.
struct Step {
  std::uint32_t struct_size = sizeof(Step);
  std::int32_t operation = HORA_BARRIER;  // hora_operation; not join
  std::int32_t dtype = HORA_UINT8;
  std::int32_t reduce_op = HORA_SUM;  // SUM, MIN, MAX, PRODUCT, ADASUM; an average is a SUM
  std::int32_t root = 0;              // broadcast: index in the set
  std::int32_t device = HORA_CPU_DEVICE;
  std::int64_t divisor = 1;  // an average: the sum is divided by this (integers: exactly)
  double prescale = 1.0;
  double postscale = 1.0;
  const Piece* pieces = nullptr;  // allreduce: any number; barrier: none; others: one
  std::int32_t piece_count = 0;
  std::int32_t reserved = 0;
  // By set index. allgather: what each rank gives (receive_counts). alltoall: both. reducescatter:
  // what each rank gets (receive_counts).
  const std::int64_t* send_counts = nullptr;
  const std::int64_t* receive_counts = nullptr;
  Activities* activities = nullptr;  // null: there is no timeline
  // Tuning, the same on every rank; 0: as the backend thinks best, which is also the maximum.
  std::int64_t small_bytes = 0;  // up to this size every rank reduces everything
  std::int64_t part_bytes = 0;   // above it: how much a rank reduces at a time
};

enum class Progress : std::int32_t { kDone = 0, kPending = 1, kFailed = 2 };

class Backend {
 public:
  // kDone: finished. kPending: the caller has to poll *ticket. kFailed: the world is unusable.
  virtual Progress execute(const Step& step, std::uint64_t* ticket, ErrorText& error) noexcept = 0;
  virtual Progress poll(std::uint64_t ticket, ErrorText& error) noexcept = 0;
  // Makes a blocked execute() return kFailed soon, and every later one too. Any thread may call it
  // at any time.
  virtual void abort() noexcept = 0;
  virtual void destroy() noexcept = 0;
  // How many operations may be under way at once; they may end in any order. They begin in the same
  // order on all ranks.
  virtual int most_under_way() const noexcept { return 1; }

 protected:
  ~Backend() = default;
};

// Bytes between two ranks, each transfer named by a tag that is unique among those in flight
// between the two. Posting never blocks for the peer. Both sides agree on the size.
class PeerLinks {
 public:
  using Ticket = std::uint64_t;  // 0: the post failed, and the next wait() says why

  virtual Ticket post_send(int rank, std::uint64_t tag, const void* data,
                           std::size_t bytes) noexcept = 0;
  virtual Ticket post_receive(int rank, std::uint64_t tag, void* data,
                              std::size_t bytes) noexcept = 0;
  // Blocks until the transfer is done and its memory is free for reuse. Wait for each ticket once.
  // Returns false for ticket 0 and after any failure; then no transfer is under way and all memory
  // is free.
  virtual bool wait(Ticket ticket, ErrorText& error) noexcept = 0;
  virtual void abort() noexcept = 0;
  virtual void destroy() noexcept = 0;

 protected:
  ~PeerLinks() = default;
};

// The runtime's services for a backend during its creation. Collective: every rank of the set calls
// exchange() the same number of times in the same order.
class Services {
 public:
  // Gives `bytes` to every rank of the set and gets theirs: received[i], lengths[i] by set index;
  // valid until the next call. With bytes_to_each, the rank of index i gets data + i * bytes.
  virtual bool exchange(const void* data, std::size_t bytes, bool bytes_to_each,
                        const void* const** received, const std::size_t** lengths,
                        ErrorText& error) noexcept = 0;
  // A setting by the name of its environment variable; null when it is not set.
  virtual const char* setting(const char* name) noexcept = 0;
  // Records how the backend works for this set, one sentence each, for people: hora_describe() and
  // the debug log.
  virtual void note(const char*) noexcept {}
  // For waits other than exchange(): the world is ending, so what this rank waits for may never
  // come.
  virtual bool is_ending() noexcept { return false; }

 protected:
  ~Services() = default;
};

// Reports messages about a backend to users during its whole life. It outlives the backend; any
// thread.
class Notices {
 public:
  // The backend works, but not as well as it should: one sentence for the log and hora_describe(),
  // where it appears once however often it is reported.
  virtual void warn(const char* sentence) noexcept = 0;

 protected:
  ~Notices() = default;
};

// The members. The arrays and the services are valid only during create() or connect().
struct GroupContext {
  std::uint32_t struct_size = sizeof(GroupContext);
  std::int32_t set = 0;    // process set id; 0 is the world
  std::int32_t index = 0;  // this rank's place in the set
  std::int32_t size = 1;
  const std::int32_t* ranks = nullptr;  // global ranks, by set index
  const std::int32_t* hosts = nullptr;  // host number, by set index; equal = the same machine
  std::int32_t rank = 0;                // global
  std::int32_t world_size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::int64_t timeout_ms = 30000;  // to set up
  const char* address = "";         // this host's own address for the others; numeric
  const char* job = "";             // unique among the jobs on this host
  Services* services = nullptr;
  Notices* notices = nullptr;      // null: not wanted
  PeerLinks* listening = nullptr;  // begin() got it; connect() takes it over
};
// Where other ranks find links that listen.
inline constexpr std::size_t kLinksCardBytes = 64;

// The rank's knowledge before it creates anything.
struct ProbeContext {
  std::uint32_t struct_size = sizeof(ProbeContext);
  std::int32_t world_size = 1;
  std::int32_t local_size = 1;
  std::int32_t reserved = 0;
};

inline constexpr std::uint32_t kAllDtypes = (1u << 11) - 1;

// One row of the selection table: this backend can do `operation` for these dtypes and sizes; the
// largest score wins.
struct Capability {
  std::int32_t operation = HORA_ALLREDUCE;
  std::uint32_t dtypes = kAllDtypes;  // bit d: hora_dtype d
  std::int64_t least_bytes = 0;
  std::int64_t most_bytes = INT64_MAX;
  std::int32_t gpu = 0;           // 1: CUDA tensors, 0: host memory
  std::int32_t across_hosts = 1;  // 0: only where all ranks of the set share a host
  std::int32_t score = 0;
  std::int32_t alone = 0;  // 1: only a set of one rank
};

// Properties of a backend that the runtime has to know: bits of BackendDescriptor::traits. Any
// thread may call it, one at a time. Without it only one thread ever does: a vendor's library may
// require that.
inline constexpr std::uint32_t kAnyThread = 1u << 0;
// It adds the numbers of each element in the order of the ranks, whatever else is in the step.
inline constexpr std::uint32_t kFixedOrder = 1u << 1;
// It computes averages of 16-bit floats in float32, so that no sum overflows.
inline constexpr std::uint32_t kWideAverages = 1u << 3;
// It uses Step::small_bytes and Step::part_bytes.
inline constexpr std::uint32_t kUsesSizeHints = 1u << 2;

// Memory of a device and where it is copied to or from.
struct HostCopy {
  void* on_device = nullptr;
  void* on_host = nullptr;  // page-locked
  std::size_t bytes = 0;
  void* producer = nullptr;  // to_host(): the stream that writes what is copied
};

struct BackendDescriptor {
  std::uint32_t border_version;  // kBorderVersion, first in every version
  std::uint32_t struct_size;
  const char* id;     // "gloo": settings, the build's options and the log use it
  const char* label;  // "Gloo": for people
  // The vendor library's version as found at run time; "" when there is none.
  const char* (*version)() noexcept;
  // Whether it can work here at all, or why not.
  bool (*probe)(const ProbeContext& context, ErrorText& why_not) noexcept;
  const Capability* rows;
  std::int32_t row_count;
  // Exactly one of the two.
  Backend* (*create)(const GroupContext& context, ErrorText& error) noexcept;
  PeerLinks* (*connect)(const GroupContext& context, ErrorText& error) noexcept;
  // Allocates and frees device memory for results; null for a backend of host memory. `content`, in
  // host memory, may be null. release() may come after every Backend is gone. Any thread may call
  // them.
  void* (*allocate)(std::int32_t device, std::size_t bytes, const void* content) noexcept = nullptr;
  void (*release)(std::int32_t device, void* memory) noexcept = nullptr;
  std::uint32_t traits = 0;
  // For operations on its tensors that only backends of host memory can do; null where allocate()
  // is. Any thread may call them. Page-locked host memory. Released memory is kept, within bounds,
  // for the next request.
  void* (*allocate_on_host)(std::int32_t device, std::size_t bytes,
                            ErrorText& error) noexcept = nullptr;
  void (*release_on_host)(std::int32_t device, void* memory) noexcept = nullptr;
  // Both block until all copies are there. to_host() waits for what their producers have been given
  // so far, also for no bytes.
  bool (*to_host)(std::int32_t device, const HostCopy* copies, std::int64_t count,
                  ErrorText& error) noexcept = nullptr;
  bool (*to_device)(std::int32_t device, const HostCopy* copies, std::int64_t count,
                    ErrorText& error) noexcept = nullptr;
  // For links that can listen before the ranks meet, which then send each other the cards, and
  // begin to connect while they set up other things. The context is that of a process without a
  // set.
  PeerLinks* (*listen)(const GroupContext& context, char (&card)[kLinksCardBytes],
                       ErrorText& error) noexcept = nullptr;
  void (*begin)(PeerLinks& listening, const GroupContext& context,
                const void* const* cards) noexcept = nullptr;  // by rank
};

// The one symbol that a module exports. Null: what the module needs is not on this host.
using BackendEntryPoint = const BackendDescriptor* (*)(ErrorText& why_not);
#define HORA_BACKEND_ENTRY_POINT "hora_backend_descriptor"

}  // namespace hora::collectives
