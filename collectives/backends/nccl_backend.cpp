// SPDX-License-Identifier: Apache-2.0
// Collectives of NCCL, on tensors in GPU memory.
//
// Compiled into a module of its own; it links neither the driver nor NCCL (nccl/libraries.h). Each
// process set has its communicators, one for each of HOROVOD_NUM_NCCL_STREAMS streams. They are
// made when the first tensor shows which device this rank uses. Operations use them in turn, in an
// order that is the same on all ranks, and as many operations as streams are under way at once.
#include <sched.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/nccl/communicator.h"
#include "collectives/backends/nccl/datatypes.h"
#include "collectives/backends/nccl/gpu.h"
#include "collectives/backends/nccl/host_copies.h"
#include "collectives/backends/nccl/host_memory.h"
#include "collectives/backends/nccl/libraries.h"
#include "collectives/backends/nccl/packing.h"
#include "collectives/types.h"

namespace hora::collectives {
namespace {

using nccl::activity_name;
using nccl::Copy;
using nccl::Cuda;
using nccl::first_failure;
using nccl::Gpu;
using nccl::Nccl;
using nccl::NcclCommunicator;
using nccl::operator_of;
using nccl::Packing;
using nccl::type_of;

// Tensors in the fusion buffer begin at a multiple of this, in bytes: the copying kernels then move
// 16 bytes at a time.
constexpr std::int64_t kAlignment = 16;

// Waits between two looks at the GPU: at first briefly, to notice the end soon, then longer, to
// leave the core to the training step.
void pause(int looks) {
  constexpr int kSoon = 200;
  if (looks < kSoon) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool is_even(const std::int64_t* counts, int size) {
  return std::all_of(counts, counts + size, [&](std::int64_t each) { return each == counts[0]; });
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(const Cuda& cuda, const Nccl& library, std::vector<ncclUniqueId> ids, int index,
              int size, std::chrono::milliseconds timeout, Notices* notices)
      : cuda_(cuda),
        nccl_(library),
        ids_(std::move(ids)),
        index_(index),
        size_(size),
        timeout_(timeout),
        notices_(notices) {}

  Progress execute(const Step& step, std::uint64_t* ticket, ErrorText& error) noexcept override {
    try {
      if (!start(step, error)) return Progress::kFailed;
      const Gpu::Current current(*gpu_);
      // All ranks begin operations in the same order, so they all choose the same communicator.
      lane_ = static_cast<int>(++last_ticket_ % ids_.size());
      CUevent done = run(step, error) ? gpu_->mark(lane_, error) : nullptr;
      if (done == nullptr) return Progress::kFailed;
      *ticket = last_ticket_;
      running_.emplace(
          last_ticket_,
          Running{lane_, done, std::make_unique<Activity>(step, activity_name(step.operation)), 0});
      return Progress::kPending;
    } catch (const std::exception& failure) {
      report_to(failure, error);
      return Progress::kFailed;
    }
  }

  Progress poll(std::uint64_t ticket, ErrorText& error) noexcept override {
    const auto found = running_.find(ticket);
    if (found == running_.end()) {
      error.set("unknown ticket");
      return Progress::kFailed;
    }
    const Gpu::Current current(*gpu_);
    const Progress progress = gpu_->look_at(found->second.done, error);
    // A kernel whose peer has died never ends; only the communicator's health shows that.
    if (progress == Progress::kPending &&
        communicators_[static_cast<std::size_t>(found->second.lane)]->is_healthy(error)) {
      pause(found->second.looks++);
      return Progress::kPending;
    }
    gpu_->recycle(found->second.done);
    running_.erase(found);
    // A kernel that was broken off has ended as well, so "done" alone proves nothing.
    if (progress == Progress::kDone && !broken_off_) return Progress::kDone;
    if (broken_off_) error.set("another operation failed");
    // A failed operation makes the world unusable: end the kernels of the other lanes as well.
    break_off();
    return Progress::kFailed;
  }

  // The next poll() breaks the kernels off, on the thread that uses the communicators.
  void abort() noexcept override { aborted_ = true; }

  int most_under_way() const noexcept override { return static_cast<int>(ids_.size()); }

  void destroy() noexcept override {
    // ncclCommDestroy() would wait for peers that are gone.
    if (aborted_) break_off();
    if (gpu_ != nullptr) {
      // NCCL frees its memory on the current device.
      const Gpu::Current current(*gpu_);
      packing_.reset();
      communicators_.clear();
    }
    delete this;
  }

 private:
  template <typename Handler>
  friend bool hora::collectives::run_operation(Handler&, const Step&, ErrorText&);

  // An operation that the GPU has not finished.
  struct Running {
    int lane;
    CUevent done;
    std::unique_ptr<Activity> activity;  // from the launch until the GPU has finished
    int looks = 0;
  };

  // Ends kernels that wait for peers which are gone; nothing else does.
  void break_off() {
    aborted_ = true;
    broken_off_ = true;
    for (const auto& each : communicators_) each->break_off();
  }

  // Opens the GPU and the communicators at the first step; afterwards checks the device.
  bool start(const Step& step, ErrorText& error) {
    std::int32_t device = step.device;
    if (aborted_) return error.set("the job is ending");
    if (gpu_ != nullptr) {
      return device == kOwnDevice || device == gpu_->device() ||
             error.set(
                 "the tensor is on device %d, but this process has used device %d: a rank "
                 "uses one GPU",
                 device, gpu_->device());
    }
    // A rank that has joined without any tensor before has to guess its device.
    if (device == kOwnDevice) device = nccl::own_device();
    nccl::use_device(device);
    const Activity activity(step, "INIT_NCCL");
    gpu_ = Gpu::open(cuda_, device, static_cast<int>(ids_.size()), error);
    if (gpu_ == nullptr) return false;
    const Gpu::Current current(*gpu_);
    for (const ncclUniqueId& id : ids_) {
      auto joined =
          NcclCommunicator::join(nccl_, *gpu_, id, index_, size_, aborted_, timeout_, error);
      if (joined == nullptr) return false;
      communicators_.push_back(std::move(joined));
    }
    packing_ = std::make_unique<Packing>(cuda_, nccl_, *gpu_, aborted_, timeout_, notices_);
    return true;
  }

  bool run(const Step& step, ErrorText& error) {
    // Each tensor is ready when the stream that produced it has come that far; one event per
    // stream.
    std::set<void*> producers;
    for (int i = 0; i < step.piece_count; ++i) producers.insert(step.pieces[i].stream);
    for (void* producer : producers) {
      if (!gpu_->wait_for(lane_, static_cast<CUstream>(producer), error)) return false;
    }
    return run_operation(*this, step, error);
  }

  // The table has no row for it: a barrier involves no GPU.
  static bool barrier(const Step&, ErrorText& error) {
    return error.set("this backend does not support this operation");
  }

  // The stream of the operation that is starting.
  CUstream stream() const { return gpu_->stream(lane_); }
  static hora_dtype dtype(const Step& step) { return static_cast<hora_dtype>(step.dtype); }
  static std::int64_t width(const Step& step) {
    return static_cast<std::int64_t>(dtype_bytes(dtype(step)));
  }

  // The calls of one operation on its lane's communicator.
  bool group(const char* what, const NcclCommunicator::Calls& calls, ErrorText& error) {
    return communicators_[static_cast<std::size_t>(lane_)]->group(what, calls, error);
  }

  // Copies and scales on this operation's stream. The kernels are loaded for the first copy and no
  // sooner: a rank whose driver compiles them for long must not keep the others from making their
  // communicators in time, and many jobs need no copy at all.
  bool copy(const Step& step, const std::vector<Copy>& copies, double factor, std::int64_t divisor,
            ErrorText& error) {
    if (!packing_->is_prepared()) {
      const Activity activity(step, "INIT_KERNELS");
      packing_->prepare();
    }
    return packing_->copy(lane_, dtype(step), copies, factor, divisor, error);
  }

  // Whether anything remains to be done after the reduction, and doing it: an average over integers
  // divides exactly; everything else is one multiplication.
  static bool has_rest(const Step& step) { return step.postscale != 1.0 || step.divisor != 1; }
  bool copy_back(const Step& step, const std::vector<Copy>& copies, ErrorText& error) {
    // Multiplying by 1/n in double could truncate to one less than the exact quotient.
    const bool exact = !is_floating(dtype(step)) && step.postscale == 1.0;
    const double factor = exact ? 1.0 : step.postscale / static_cast<double>(step.divisor);
    return copy(step, copies, factor, exact ? step.divisor : 1, error);
  }

  bool reduce(const void* input, void* output, std::int64_t count, const Step& step,
              ErrorText& error) {
    const auto op = operator_of(dtype(step), static_cast<hora_reduce_op>(step.reduce_op));
    return count == 0 ||
           group(
               "ncclAllReduce",
               [&](ncclComm_t communicator) {
                 return nccl_.ncclAllReduce(input, output, static_cast<std::size_t>(count),
                                            type_of(dtype(step)), op, communicator, stream());
               },
               error);
  }

  bool allreduce(const Step& step, ErrorText& error) {
    if (step.piece_count == 1) {
      const Piece& piece = step.pieces[0];
      const void* input = piece.input;
      // The scaled input goes to the output, from which the reduction then works in place.
      if (step.prescale != 1.0) {
        const std::vector<Copy> scale = {{piece.input, piece.output, piece.count}};
        if (!copy(step, scale, step.prescale, 1, error)) return false;
        input = piece.output;
      }
      return reduce(input, piece.output, piece.count, step, error) &&
             (!has_rest(step) ||
              copy_back(step, {{piece.output, piece.output, piece.count}}, error));
    }
    // Several tensors: the layout of the fusion buffer is the same on all ranks, since it follows
    // from the agreed counts. The gaps between tensors are reduced, too, and never read.
    std::int64_t bytes = 0;
    std::vector<std::int64_t> places;
    for (int i = 0; i < step.piece_count; ++i) {
      places.push_back(bytes);
      const std::int64_t end = bytes + step.pieces[i].count * width(step);
      bytes = (end + kAlignment - 1) / kAlignment * kAlignment;
    }
    auto* const packed = static_cast<char*>(
        gpu_->buffer(lane_, static_cast<std::size_t>(std::max(bytes, kAlignment)), error));
    if (packed == nullptr) return false;
    std::vector<Copy> in;
    std::vector<Copy> out;
    for (int i = 0; i < step.piece_count; ++i) {
      char* const place = packed + places[static_cast<std::size_t>(i)];
      in.push_back({step.pieces[i].input, place, step.pieces[i].count});
      out.push_back({place, step.pieces[i].output, step.pieces[i].count});
    }
    // Pack and prescale in one pass, reduce in place, unpack and scale in another.
    return copy(step, in, step.prescale, 1, error) &&
           reduce(packed, packed, bytes / width(step), step, error) && copy_back(step, out, error);
  }

  bool allgather(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    // In bytes, as uint8: a movement works for every dtype, also for those that NCCL lacks.
    const std::int64_t* const counts = step.receive_counts;
    auto* const output = static_cast<char*>(piece.output);
    // All ranks see the same counts: nothing to gather anywhere.
    if (std::accumulate(counts, counts + size_, INT64_C(0)) == 0) return true;
    return group(
        "ncclAllGather",
        [&](ncclComm_t communicator) {
          // ncclAllGather needs equal counts; otherwise a group of broadcasts does the same in one
          // launch.
          if (is_even(counts, size_)) {
            return nccl_.ncclAllGather(piece.input, output,
                                       static_cast<std::size_t>(counts[0] * width(step)), ncclUint8,
                                       communicator, stream());
          }
          ncclResult_t result = ncclSuccess;
          char* place = output;
          for (int root = 0; root < size_; ++root) {
            const std::int64_t bytes = counts[root] * width(step);
            if (bytes == 0) continue;
            result =
                first_failure(result, nccl_.ncclBroadcast(root == index_ ? piece.input : place,
                                                          place, static_cast<std::size_t>(bytes),
                                                          ncclUint8, root, communicator, stream()));
            place += bytes;
          }
          return result;
        },
        error);
  }

  // All pieces of a step in one group, so that NCCL launches them together.
  bool broadcast(const Step& step, ErrorText& error) {
    return group(
        "ncclBroadcast",
        [&](ncclComm_t communicator) {
          ncclResult_t result = ncclSuccess;
          for (int i = 0; i < step.piece_count; ++i) {
            const Piece& piece = step.pieces[i];
            const std::int64_t bytes = piece.count * width(step);
            if (bytes == 0) continue;
            // NCCL ignores the input on all other ranks.
            const void* const input = index_ == step.root ? piece.input : piece.output;
            result = first_failure(
                result, nccl_.ncclBroadcast(input, piece.output, static_cast<std::size_t>(bytes),
                                            ncclUint8, step.root, communicator, stream()));
          }
          return result;
        },
        error);
  }

  // NCCL has no alltoall: a group of sends and receives, which NCCL runs at the same time.
  bool alltoall(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    return group(
        "ncclSend and ncclRecv",
        [&](ncclComm_t communicator) {
          ncclResult_t result = ncclSuccess;
          const auto* from = static_cast<const char*>(piece.input);
          auto* to = static_cast<char*>(piece.output);
          for (int peer = 0; peer < size_; ++peer) {
            const std::int64_t sent = step.send_counts[peer] * width(step);
            const std::int64_t received = step.receive_counts[peer] * width(step);
            if (sent > 0) {
              result =
                  first_failure(result, nccl_.ncclSend(from, static_cast<std::size_t>(sent),
                                                       ncclUint8, peer, communicator, stream()));
            }
            if (received > 0) {
              result =
                  first_failure(result, nccl_.ncclRecv(to, static_cast<std::size_t>(received),
                                                       ncclUint8, peer, communicator, stream()));
            }
            from += sent;
            to += received;
          }
          return result;
        },
        error);
  }

  bool reducescatter(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    if (piece.count == 0) return true;
    const auto op = operator_of(dtype(step), static_cast<hora_reduce_op>(step.reduce_op));
    const auto type = type_of(dtype(step));
    const void* input = piece.input;
    if (step.prescale != 1.0) {
      // Not into the output, which only has room for this rank's part.
      void* const all =
          gpu_->buffer(lane_, static_cast<std::size_t>(piece.count * width(step)), error);
      if (all == nullptr || !copy(step, {{input, all, piece.count}}, step.prescale, 1, error)) {
        return false;
      }
      input = all;
    }
    const std::int64_t* const counts = step.receive_counts;
    const bool good = group(
        "ncclReduceScatter",
        [&](ncclComm_t communicator) {
          // As above: unequal counts take one reduction per rank.
          if (is_even(counts, size_)) {
            return nccl_.ncclReduceScatter(input, piece.output, static_cast<std::size_t>(counts[0]),
                                           type, op, communicator, stream());
          }
          ncclResult_t result = ncclSuccess;
          const auto* place = static_cast<const char*>(input);
          for (int root = 0; root < size_; ++root) {
            if (counts[root] == 0) continue;
            result =
                first_failure(result, nccl_.ncclReduce(place, piece.output,
                                                       static_cast<std::size_t>(counts[root]), type,
                                                       op, root, communicator, stream()));
            place += counts[root] * width(step);
          }
          return result;
        },
        error);
    return good && (!has_rest(step) ||
                    copy_back(step, {{piece.output, piece.output, counts[index_]}}, error));
  }

  const Cuda& cuda_;
  const Nccl& nccl_;
  std::vector<ncclUniqueId> ids_;  // one per stream
  int index_;
  int size_;
  std::chrono::milliseconds timeout_;
  Notices* notices_;
  std::unique_ptr<Gpu> gpu_;  // null before the first step
  std::unique_ptr<Packing> packing_;
  std::vector<std::unique_ptr<NcclCommunicator>> communicators_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t last_ticket_ = 0;
  int lane_ = 0;  // stream of the step that execute() is starting
  std::atomic<bool> aborted_{false};
  bool broken_off_ = false;
};

const char* version() noexcept { return nccl::nccl_version(); }

Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    const Cuda* const driver = nccl::cuda(error);
    const Nccl* const library = driver == nullptr ? nullptr : nccl::nccl(error);
    std::vector<ncclUniqueId> ids;
    if (library == nullptr || !nccl::exchange_ids(group, *driver, *library, ids, error)) {
      return nullptr;
    }
    nccl::expect_place(group.local_rank);
    return new NcclBackend(*driver, *library, std::move(ids), group.index, group.size,
                           std::chrono::milliseconds(group.timeout_ms), group.notices);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

// NCCL cannot reduce 16-bit integers; movements are in bytes.
constexpr std::uint32_t kReducible = kAllDtypes & ~(1u << HORA_UINT16) & ~(1u << HORA_INT16);

constexpr Capability row(hora_operation operation, std::uint32_t dtypes) {
  Capability capability;
  capability.operation = operation;
  capability.dtypes = dtypes;
  capability.gpu = 1;
  capability.score = 100;
  return capability;
}

// Complete when probe() has seen the library.
Capability rows[] = {row(HORA_ALLREDUCE, kReducible), row(HORA_ALLGATHER, kAllDtypes),
                     row(HORA_BROADCAST, kAllDtypes), row(HORA_ALLTOALL, kAllDtypes),
                     row(HORA_REDUCESCATTER, kReducible)};

void leave_out_bfloat16() {
  for (Capability& each : rows) {
    if (each.dtypes != kAllDtypes) each.dtypes &= ~(1u << HORA_BFLOAT16);
  }
}

// The first missing library is the reason.
bool probe(const ProbeContext&, ErrorText& why_not) noexcept {
  if (nccl::cuda(why_not) == nullptr) return false;
  const Nccl* const library = nccl::nccl(why_not);
  static std::once_flag once;
  if (library != nullptr && !library->knows_bfloat16()) std::call_once(once, leave_out_bfloat16);
  return library != nullptr;
}

constexpr BackendDescriptor kDescriptor = {kBorderVersion,
                                           sizeof(BackendDescriptor),
                                           "nccl",
                                           "NCCL",
                                           version,
                                           probe,
                                           rows,
                                           sizeof rows / sizeof rows[0],
                                           create,
                                           nullptr,
                                           nccl::allocate,
                                           nccl::release,
                                           0,
                                           nccl::allocate_on_host,
                                           nccl::release_on_host,
                                           nccl::to_host,
                                           nccl::to_device};

}  // namespace
}  // namespace hora::collectives

extern "C" __attribute__((visibility("default"))) const hora::collectives::BackendDescriptor*
hora_backend_descriptor(hora::collectives::ErrorText& /*why_not*/) {
  return &hora::collectives::kDescriptor;
}
