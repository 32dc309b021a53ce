// SPDX-License-Identifier: Apache-2.0
// Collectives of Intel's oneCCL, on host memory.
//
// Its C interface is opened at run time, and what is used of it is declared here: the build needs
// nothing of oneCCL. A call of oneCCL blocks, and cannot be ended when a rank is lost. So one
// thread makes all calls, on copies of the tensors; a call that does not return keeps that thread
// and its copies, and the process never uses oneCCL again.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"
#include "collectives/types.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {
namespace {

// The types and values of oneCCL's C interface.
using Comm = void*;
constexpr int kSuccess = 0;
struct UniqueId {
  char data[4096];
};
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 20220200;
  int blocking = INT32_MIN;  // INT32_MIN, null: the default
  int cga_cluster_size = INT32_MIN;
  int least_ctas = INT32_MIN;
  int most_ctas = INT32_MIN;
  const char* net_name = nullptr;
  int split_share = INT32_MIN;
  int multi_threaded = INT32_MIN;
  unsigned plugin = 0xbaaaaaae;  // the one for CPUs
};

// clang-format off
#define HORA_CCL_FUNCTIONS(X)                                                                     \
  X(int, onecclGetVersion, (int*))                                                                \
  X(const char*, onecclGetLastError, (Comm))                                                      \
  X(int, onecclGetUniqueId, (UniqueId*))                                                          \
  X(int, onecclCommInitRankConfig, (Comm*, std::size_t, UniqueId, int, const Config*))            \
  X(int, onecclCommDestroy, (Comm))                                                               \
  X(int, onecclAllReduce, (void*, void*, std::size_t, int, int, Comm, void*))                     \
  X(int, onecclAllGather, (const void*, void*, std::size_t, int, Comm, void*))                    \
  X(int, onecclBroadcast, (const void*, void*, std::size_t, int, int, Comm, void*))               \
  X(int, onecclAllToAllV, (const void*, const std::size_t*, void*, const std::size_t*, int, Comm, \
                           void*))
// clang-format on
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration.
#define HORA_MEMBER(result, name, arguments) result(*name) arguments;
// Constant-initialised, and without a destructor: a call may outlive everything else.
constinit struct Library {
  HORA_CCL_FUNCTIONS(HORA_MEMBER)
  int code;  // 20220200 is 2022.2.0
} ccl{};
#undef HORA_MEMBER

constexpr int kOldest = 20220200;
constexpr int kUint8 = 1;

int type_of(hora_dtype dtype) {
  switch (dtype) {
    case HORA_INT8:
      return 0;
    case HORA_INT32:
      return 2;
    case HORA_INT64:
      return 4;
    case HORA_FLOAT16:
      return 6;
    case HORA_FLOAT32:
      return 7;
    case HORA_FLOAT64:
      return 8;
    case HORA_BFLOAT16:
      return 9;
    default:
      return kUint8;
  }
}

int operator_of(hora_dtype dtype, hora_reduce_op op) {
  constexpr int kSum = 0, kProduct = 1, kMax = 2, kMin = 3;
  if (dtype == HORA_BOOL) return op == HORA_MIN || op == HORA_PRODUCT ? kMin : kMax;
  switch (op) {
    case HORA_MIN:
      return kMin;
    case HORA_MAX:
      return kMax;
    case HORA_PRODUCT:
      return kProduct;
    default:
      return kSum;
  }
}

const char* version() noexcept {
  static const std::string text = std::to_string(ccl.code / 10000) + "." +
                                  std::to_string(ccl.code / 100 % 100) + "." +
                                  std::to_string(ccl.code % 100);
  return text.c_str();
}

// A call did not return, or the process is ending: oneCCL must not be called any more.
std::atomic<bool> calls_are_over{false};

bool open_library(ErrorText& why_not) {
  void* const library = dlopen("libccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return why_not.set("%s", dlerror());
#define HORA_FIND(result, name, arguments)                                \
  ccl.name = reinterpret_cast<decltype(ccl.name)>(dlsym(library, #name)); \
  if (ccl.name == nullptr) return why_not.set("%s", dlerror());
  HORA_CCL_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
  if (ccl.onecclGetVersion(&ccl.code) != kSuccess || ccl.code < kOldest) {
    return why_not.set("oneCCL %s is too old; 2022.2 or newer is needed", version());
  }
  // What oneCCL opens itself at the first call, from its own folder.
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(ccl.onecclGetVersion), &info);
  std::string part = info.dli_fname == nullptr ? "" : info.dli_fname;
  part = part.substr(0, part.rfind('/') + 1) + "libccl_legacy_cpu.so";
  return dlopen(part.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr || why_not.set("%s", dlerror());
}

// The thread of this process that calls oneCCL. It is never joined and its state never destroyed.
class Caller {
 public:
  // A call returns what oneCCL does. It owns all memory that it uses.
  using Call = std::function<int()>;

  static Caller& of_process() {
    static auto* const caller = new Caller;
    return *caller;
  }

  // Makes the call and waits for it. False if it fails, and, with the call left behind, as soon as
  // is_over() says why the wait ends; it is asked every few milliseconds.
  bool make(Call call, const char* what, const std::function<const char*()>& is_over,
            ErrorText& error) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (calls_are_over) {
      return error.set(
          "a call of oneCCL did not return in an earlier job of this process, so it "
          "cannot be used again; restart the process");
    }
    if (!started_) std::thread(&Caller::run, this).detach();
    started_ = true;
    call_ = std::move(call);
    done_ = false;
    changed_.notify_all();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(5), [this] { return done_; })) {
      const char* const why = is_over();
      if (why == nullptr) continue;
      calls_are_over = true;
      // The destructors of oneCCL would crash that call. Handlers run in the reverse order, so this
      // ends the process before them.
      ::on_exit(
          [](int status, void*) {
            std::fflush(nullptr);
            _exit(status);
          },
          nullptr);
      return error.set("%s: %s", what, why);
    }
    if (result_ == kSuccess) return true;
    return error.set("%s: %s", what, failure_.c_str());
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return call_ != nullptr; });
      const Call call = std::exchange(call_, nullptr);
      lock.unlock();
      const int result = call();
      const char* const text = result == kSuccess ? "" : ccl.onecclGetLastError(nullptr);
      lock.lock();
      result_ = result;
      failure_ = text == nullptr || *text == '\0' ? "error " + std::to_string(result) : text;
      done_ = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Call call_;
  bool started_ = false;
  bool done_ = false;
  int result_ = kSuccess;
  std::string failure_;
};

// How much goes through the copies at a time.
constexpr std::int64_t kPartBytes = 16 << 20;

using Memory = std::shared_ptr<std::vector<char>>;

class CclBackend final : public BlockingBackend<CclBackend> {
 public:
  CclBackend(Comm comm, int index, int size) : comm_(comm), index_(index), size_(size) {}

  void abort() noexcept override { aborted_ = true; }

  void destroy() noexcept override {
    // After an abort the others may be gone, and oneCCL keeps what it has.
    ErrorText ignored;
    const Deadline deadline = Clock::now() + std::chrono::seconds(5);
    if (!aborted_) {
      Caller::of_process().make(
          [comm = comm_] { return ccl.onecclCommDestroy(comm); }, "onecclCommDestroy",
          [&]() -> const char* { return Clock::now() < deadline ? nullptr : "timed out"; },
          ignored);
    }
    delete this;
  }

  bool run(const Step& step, ErrorText& error) {
    // A call that was left behind still has the copies.
    if (aborted_) return error.set("the job is ending");
    dtype_ = static_cast<hora_dtype>(step.dtype);
    width_ = static_cast<std::int64_t>(dtype_bytes(dtype_));
    return run_operation(*this, step, error);
  }

  // The tensors are reduced as if they lay end to end, part by part.
  bool allreduce(const Step& step, ErrorText& error) {
    std::int64_t total = 0;
    for (int i = 0; i < step.piece_count; ++i) total += step.pieces[i].count;
    // oneCCL's minimum and maximum drop a NaN, and not the same one on all ranks.
    const auto op = static_cast<hora_reduce_op>(step.reduce_op);
    const bool is_ours = is_floating(dtype_) && (op == HORA_MIN || op == HORA_MAX);
    const std::int64_t most =
        std::max<std::int64_t>(kPartBytes / (is_ours ? size_ : 1) / width_, 1);
    for (std::int64_t first = 0; first < total; first += most) {
      const std::int64_t count = std::min(most, total - first);
      char* const part = room(input_, count * width_);
      copy_part(step, first, count, part, true);
      apply_scale(part, count, dtype_, step.prescale, 1);
      const Activity activity(step, "CCL_ALLREDUCE");
      if (!(is_ours ? gather_and_reduce(count, op, error) : reduce(count, op, error))) return false;
      apply_scale(part, count, dtype_, step.postscale, step.divisor);
      copy_part(step, first, count, part, false);
    }
    return true;
  }

  // oneCCL gathers the same from all ranks, so each part is as long as the longest rest.
  bool allgather(const Step& step, ErrorText& error) {
    const Activity activity(step, "CCL_ALLGATHER");
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      const std::int64_t* counts = step.receive_counts + static_cast<std::ptrdiff_t>(i) * size_;
      const std::int64_t longest = *std::max_element(counts, counts + size_) * width_;
      const std::int64_t most = std::max<std::int64_t>(kPartBytes / size_, 1);
      for (std::int64_t first = 0; first < longest; first += most) {
        const std::int64_t bytes = std::min(most, longest - first);
        const auto part_of = [&](int rank) {
          return std::clamp<std::int64_t>(counts[rank] * width_ - first, 0, bytes);
        };
        copy(room(input_, bytes), static_cast<const char*>(piece.input) + first, part_of(index_));
        if (!gather(bytes, error)) return false;
        const char* from = output_->data();
        char* to = static_cast<char*>(piece.output) + first;
        for (int rank = 0; rank < size_; ++rank) {
          copy(to, from, part_of(rank));
          to += counts[rank] * width_;
          from += bytes;
        }
      }
    }
    return true;
  }

  bool broadcast(const Step& step, ErrorText& error) {
    const Activity activity(step, "CCL_BCAST");
    const bool is_root = index_ == step.root;
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      if (is_root) copy_unless_same(piece.output, piece.input, piece.count * width_);
      for (std::int64_t first = 0; first < piece.count * width_; first += kPartBytes) {
        const std::int64_t bytes = std::min(kPartBytes, piece.count * width_ - first);
        char* const part = room(input_, bytes);
        char* const place = static_cast<char*>(piece.output) + first;
        if (is_root) copy(part, place, bytes);
        const bool good = call(
            [memory = input_, comm = comm_, bytes, root = step.root] {
              return ccl.onecclBroadcast(memory->data(), memory->data(),
                                         static_cast<std::size_t>(bytes), kUint8, root, comm,
                                         nullptr);
            },
            "onecclBroadcast", error);
        if (!good) return false;
        if (!is_root) copy(place, part, bytes);
      }
    }
    return true;
  }

  bool alltoall(const Step& step, ErrorText& error) {
    const Activity activity(step, "CCL_ALLTOALL");
    const Piece& piece = step.pieces[0];
    std::vector<std::size_t> sent, received;
    for (int rank = 0; rank < size_; ++rank) {
      sent.push_back(static_cast<std::size_t>(step.send_counts[rank] * width_));
      received.push_back(static_cast<std::size_t>(step.receive_counts[rank] * width_));
    }
    const auto bytes = [](const std::vector<std::size_t>& counts) {
      return static_cast<std::int64_t>(
          std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    };
    const std::int64_t output_bytes = bytes(received);
    copy(room(input_, bytes(sent)), piece.input, bytes(sent));
    const char* const output = room(output_, output_bytes);
    const bool good = call(
        [in = input_, out = output_, comm = comm_, sent = std::move(sent),
         received = std::move(received)] {
          return ccl.onecclAllToAllV(in->data(), sent.data(), out->data(), received.data(), kUint8,
                                     comm, nullptr);
        },
        "onecclAllToAllV", error);
    if (good) copy(piece.output, output, output_bytes);
    return good;
  }

  // No row offers them.
  bool reducescatter(const Step&, ErrorText& error) { return error.set("not offered"); }
  bool barrier(const Step&, ErrorText& error) { return error.set("not offered"); }

 private:
  // From the input's copy to the same place.
  bool reduce(std::int64_t count, hora_reduce_op op, ErrorText& error) {
    return call(
        [memory = input_, comm = comm_, count, type = type_of(dtype_),
         code = operator_of(dtype_, op)] {
          return ccl.onecclAllReduce(memory->data(), memory->data(),
                                     static_cast<std::size_t>(count), type, code, comm, nullptr);
        },
        "onecclAllReduce", error);
  }

  bool gather_and_reduce(std::int64_t count, hora_reduce_op op, ErrorText& error) {
    const std::int64_t bytes = count * width_;
    if (!gather(bytes, error)) return false;
    const auto of = [&](int rank) { return output_->data() + rank * bytes; };
    reduce_ranks(input_->data(), of, size_, count, dtype_, op, 1.0, 1);
    return true;
  }

  // That many bytes of each rank's input, to the output.
  bool gather(std::int64_t bytes, ErrorText& error) {
    room(output_, bytes * size_);
    return call(
        [input = input_, output = output_, comm = comm_, bytes] {
          return ccl.onecclAllGather(input->data(), output->data(), static_cast<std::size_t>(bytes),
                                     kUint8, comm, nullptr);
        },
        "onecclAllGather", error);
  }

  bool call(Caller::Call what, const char* name, ErrorText& error) {
    return Caller::of_process().make(
        std::move(what), name,
        [this]() -> const char* { return aborted_ ? "the job is ending" : nullptr; }, error);
  }

  // At least one byte: oneCCL takes no null pointer.
  static char* room(Memory& memory, std::int64_t bytes) {
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    if (memory->size() < wanted) memory->resize(wanted);
    return memory->data();
  }

  static void copy(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  // Copies elements from `first` on of the inputs to `part`, or back to the outputs.
  void copy_part(const Step& step, std::int64_t first, std::int64_t count, char* part,
                 bool to_part) const {
    const Activity activity(step, to_part ? "MEMCPY_IN_FUSION_BUFFER" : "MEMCPY_OUT_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count && count > 0; ++i) {
      const Piece& piece = step.pieces[i];
      const std::int64_t here = std::clamp<std::int64_t>(piece.count - first, 0, count);
      if (here > 0) {
        const std::int64_t bytes = here * width_;
        if (to_part) {
          copy(part, static_cast<const char*>(piece.input) + first * width_, bytes);
        } else {
          copy(static_cast<char*>(piece.output) + first * width_, part, bytes);
        }
        part += bytes;
        count -= here;
      }
      first = std::max<std::int64_t>(first - piece.count, 0);
    }
  }

  Comm comm_;
  int index_;
  int size_;
  std::atomic<bool> aborted_{false};
  Memory input_ = std::make_shared<std::vector<char>>();
  Memory output_ = std::make_shared<std::vector<char>>();
  hora_dtype dtype_ = HORA_UINT8;  // the running operation's
  std::int64_t width_ = 1;
};

// With MPI as its transport oneCCL would initialise MPI, and end the process where that fails.
bool probe(const ProbeContext&, ErrorText& why_not) noexcept {
  const char* const transport = std::getenv("CCL_ATL_TRANSPORT");
  return (transport != nullptr && std::strcmp(transport, "ofi") == 0) ||
         why_not.set("CCL_ATL_TRANSPORT is not ofi; horarun --cpu-operations ccl sets it");
}

// The first rank of the set makes the id, which holds the address where the others meet it.
Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    Caller& caller = Caller::of_process();
    const Deadline deadline = Clock::now() + std::chrono::milliseconds(group.timeout_ms);
    const auto is_over = [&]() -> const char* {
      if (group.services->is_ending()) return "the job is ending";
      return Clock::now() < deadline ? nullptr : "timed out waiting for the other processes";
    };
    struct Meeting {
      UniqueId id{};
      Config config;
      Comm comm = nullptr;
    };
    const auto meeting = std::make_shared<Meeting>();
    const bool is_first = group.index == 0;
    if (is_first && !caller.make([meeting] { return ccl.onecclGetUniqueId(&meeting->id); },
                                 "onecclGetUniqueId", is_over, error)) {
      return nullptr;
    }
    const void* const* ids = nullptr;
    const std::size_t* lengths = nullptr;
    if (!group.services->exchange(&meeting->id, is_first ? sizeof meeting->id : 0, false, &ids,
                                  &lengths, error)) {
      return nullptr;
    }
    if (lengths[0] != sizeof meeting->id) {
      error.set("the first rank made no id for oneCCL");
      return nullptr;
    }
    std::memcpy(&meeting->id, ids[0], sizeof meeting->id);
    const bool good = caller.make(
        [meeting, index = group.index, size = static_cast<std::size_t>(group.size)] {
          return ccl.onecclCommInitRankConfig(&meeting->comm, size, meeting->id, index,
                                              &meeting->config);
        },
        "onecclCommInitRankConfig", is_over, error);
    // Here oneCCL has made what its destructors destroy, which run after this.
    static const int at_exit = std::atexit([] { calls_are_over = true; });
    static_cast<void>(at_exit);
    return good ? new CclBackend(meeting->comm, group.index, group.size) : nullptr;
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

constexpr Capability row(hora_operation operation, std::uint32_t dtypes) {
  Capability capability;
  capability.operation = operation;
  capability.dtypes = dtypes;
  // Above every other's: it is used only where it is asked for.
  capability.score = 300;
  return capability;
}

// oneCCL has no numbers of 16 bits; movements are in bytes.
constexpr std::uint32_t kReducible = kAllDtypes & ~(1u << HORA_UINT16) & ~(1u << HORA_INT16);
constexpr std::array kRows = {row(HORA_ALLREDUCE, kReducible), row(HORA_ALLGATHER, kAllDtypes),
                              row(HORA_BROADCAST, kAllDtypes), row(HORA_ALLTOALL, kAllDtypes)};
constexpr BackendDescriptor kDescriptor =
    with_traits(backend_descriptor("ccl", "oneCCL", kRows, create, version, probe), kAnyThread);

}  // namespace
}  // namespace hora::collectives

extern "C" __attribute__((visibility("default"))) const hora::collectives::BackendDescriptor*
hora_backend_descriptor(hora::collectives::ErrorText& why_not) {
  return hora::collectives::open_library(why_not) ? &hora::collectives::kDescriptor : nullptr;
}
