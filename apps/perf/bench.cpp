// SPDX-License-Identifier: Apache-2.0
// Measures one collective for one size. All ranks must make the same calls in the same number, so
// every decision that depends on time is agreed on first.
#include "apps/perf/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "apps/perf/gpu.h"
#include "apps/smoke/session.h"
#include "collectives/types.h"

namespace hora::perf {

namespace {

using smoke::Array;
using Clock = std::chrono::steady_clock;

// Values repeat with this period, and are small whole numbers: sums are exact in every dtype.
constexpr std::int64_t kPeriod = 4;
// Ranks from here on contribute neutral values, so that sums fit into eight bits.
constexpr int kGivers = 32;

double value_at(const Options& options, int rank, std::int64_t index) {
  const auto place = static_cast<double>(index % kPeriod);
  if (options.dtype == HORA_BOOL) return (index + rank) % kPeriod == 0 ? 1 : 0;
  // A product of many values would overflow, so only rank 0 has some.
  if (options.op == HORA_PRODUCT) return rank == 0 ? place : 1;
  if (options.op == HORA_AVERAGE) return place > 1 ? 1 : 0;
  if (rank >= kGivers) return 0;
  return static_cast<double>((index + rank) % kPeriod);
}

double reduced_at(const Options& options, int ranks, std::int64_t index) {
  double result = value_at(options, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = value_at(options, rank, index);
    switch (options.op) {
      case HORA_MIN:
        result = std::min(result, value);
        break;
      case HORA_MAX:
      case HORA_AVERAGE:  // all ranks give the same
        result = std::max(result, value);
        break;
      case HORA_PRODUCT:
        result *= value;
        break;
      default:
        result += value;
    }
  }
  return options.dtype == HORA_BOOL && result > 1 ? 1 : result;
}

// Holds `count` elements of any dtype, not initialised. The alignment is that of a cache line.
class Memory {
 public:
  enum class MemoryKind { kHost, kGpu, kHostForGpu };
  Memory(std::int64_t count, std::size_t width, MemoryKind place)
      : data_(allocate((static_cast<std::size_t>(count) * width + 64 + 63) / 64 * 64, place),
              Free{place}) {}
  char* data() const { return data_.get(); }

 private:
  struct Free {
    MemoryKind place;
    void operator()(char* memory) const {
      if (place == MemoryKind::kGpu) {
        Gpu::mine().free(memory);
      } else if (place == MemoryKind::kHostForGpu) {
        Gpu::mine().free_on_host(memory);
      } else {
        std::free(memory);
      }
    }
  };
  static char* allocate(std::size_t bytes, MemoryKind place) {
    if (place == MemoryKind::kGpu) return static_cast<char*>(Gpu::mine().allocate(bytes));
    if (place == MemoryKind::kHostForGpu) {
      return static_cast<char*>(Gpu::mine().allocate_on_host(bytes));
    }
    char* const memory = static_cast<char*>(std::aligned_alloc(64, bytes));
    if (memory == nullptr)
      throw Failure{"not enough memory for " + std::to_string(bytes) + " bytes"};
    return memory;
  }

  std::unique_ptr<char, Free> data_;
};

// A stretch of periodic values, long enough to fill and compare whole blocks.
class Pattern {
 public:
  template <typename ValueAt>
  Pattern(hora_dtype dtype, const ValueAt& value_of) : width_(collectives::dtype_bytes(dtype)) {
    Array one(dtype, {kBlock + kPeriod});
    for (std::int64_t i = 0; i < one.count(); ++i) one.set(i, value_of(i % kPeriod));
    bytes_.assign(static_cast<const char*>(one.data()),
                  static_cast<std::size_t>(one.count()) * width_);
  }

  // Fills with elements that begin at the start of the period.
  void fill(char* target, std::int64_t count) const {
    for_blocks(count, [&](std::int64_t first, std::size_t bytes) {
      std::memcpy(target + static_cast<std::size_t>(first) * width_, bytes_.data(), bytes);
    });
  }
  std::int64_t differences(const char* found, std::int64_t count, std::int64_t phase) const {
    // Another phase starts a few elements later; the pattern is a period longer than a block.
    const char* expected = bytes_.data() + static_cast<std::size_t>(phase % kPeriod) * width_;
    std::int64_t wrong = 0;
    for_blocks(count, [&](std::int64_t first, std::size_t bytes) {
      const char* block = found + static_cast<std::size_t>(first) * width_;
      // Compares element by element only if a block differs.
      if (std::memcmp(block, expected, bytes) == 0) return;
      for (std::size_t place = 0; place < bytes; place += width_) {
        if (std::memcmp(block + place, expected + place, width_) != 0) ++wrong;
      }
    });
    return wrong;
  }

 private:
  static constexpr std::int64_t kBlock = 1024;

  template <typename Function>
  void for_blocks(std::int64_t count, const Function& function) const {
    for (std::int64_t first = 0; first < count; first += kBlock) {
      function(first, static_cast<std::size_t>(std::min(kBlock, count - first)) * width_);
    }
  }

  std::size_t width_;
  std::string bytes_;
};

// Reduces one number over all ranks; every rank gets the same.
double agree(double mine, hora_reduce_op op) {
  Array value(HORA_FLOAT64, {1});
  value.set(0, mine);
  const smoke::Answer answer = smoke::allreduce("perf.agree", value, value, op);
  if (answer.status != HORA_OK) throw Failure{answer.text};
  return value.get(0);
}

class Bench {
 public:
  Bench(const Options& options, std::int64_t bytes)
      : options_(options),
        rank_(hora_rank()),
        size_(hora_size()),
        width_(collectives::dtype_bytes(options.dtype)),
        count_(whole_count(bytes)),
        given_(options.operation == HORA_ALLGATHER ? count_ / size_ : count_),
        place_(options.gpu ? Memory::MemoryKind::kGpu : Memory::MemoryKind::kHost),
        input_(given_, width_, place_),
        output_(same_memory() ? 0 : given_, width_, place_),
        staging_(options.gpu ? std::max(given_, count_) : 0, width_,
                 options.gpu ? Memory::MemoryKind::kHostForGpu : Memory::MemoryKind::kHost),
        mine_(options.dtype, [&](std::int64_t i) { return value_at(options, rank_, i); }) {
    shape_[0] = given_;
    request_ = smoke::request_for(options.operation, "perf");
    request_.reduce_op = options.op;
    request_.root_rank = options.root;
    if (options.operation == HORA_BARRIER) {
      request_.name = nullptr;
      return;
    }
    request_.input = tensor(input_.data());
    if (has_output()) request_.output = tensor(same_memory() ? input_.data() : output_.data());
    if (options.gpu) request_.stream = Gpu::mine().stream();
    fill_input();
    // Touch the memory before it is timed: the first access to a page costs a fault.
    if (!same_memory() && !options.gpu) {
      std::memset(output_.data(), 0, static_cast<std::size_t>(given_) * width_);
    }
    if (!options.prepared || !has_output()) return;
    hora_plan* plan = nullptr;
    if (hora_prepare(&request_, 1, &plan) != HORA_OK) throw Failure{hora_last_error()};
    plan_.reset(plan);
  }

  Row run() {
    Row row;
    row.bytes = count_ * static_cast<std::int64_t>(width_);
    row.count = count_;
    const std::int64_t wrong = options_.check ? checked_call() : -1;
    for (int i = 0; i < options_.warm_up; ++i) call(nullptr);
    // Use the slowest rank's estimate, so that all ranks make the same number of calls.
    const auto start = Clock::now();
    for (int i = 0; i < 3; ++i) call(nullptr);
    const double each = agree(seconds_since(start) / 3, HORA_MAX);
    row.iterations = options_.iterations > 0
                         ? options_.iterations
                         : static_cast<int>(std::clamp(options_.seconds / each, 5.0, 100'000.0));
    std::vector<double> times(static_cast<std::size_t>(row.iterations));
    // This also makes the ranks begin together.
    agree(0, HORA_SUM);
    for (double& time : times) {
      const auto begin = Clock::now();
      call(nullptr);
      time = seconds_since(begin) * 1e6;
    }
    summarize(times, row);
    // Check before and after: an error may appear only once caches and pools are warm.
    row.wrong = options_.check ? static_cast<std::int64_t>(
                                     agree(static_cast<double>(wrong + checked_call()), HORA_SUM))
                               : -1;
    return row;
  }

 private:
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool has_output() const {
    return options_.operation == HORA_ALLREDUCE || options_.operation == HORA_BROADCAST;
  }
  bool same_memory() const { return !has_output() || options_.in_place; }

  // Allgather, alltoall and reducescatter need a multiple of the ranks.
  std::int64_t whole_count(std::int64_t bytes) const {
    const std::int64_t count = bytes / static_cast<std::int64_t>(width_);
    if (options_.operation == HORA_BARRIER) return 0;
    if (has_output()) return std::max<std::int64_t>(count, 1);
    return std::max<std::int64_t>(count / size_, 1) * size_;
  }

  hora_tensor tensor(void* data) {
    hora_tensor tensor{};
    tensor.data = data;
    tensor.shape = shape_;
    tensor.ndim = 1;
    tensor.dtype = options_.dtype;
    tensor.device = options_.gpu ? Gpu::mine().device() : HORA_CPU_DEVICE;
    return tensor;
  }

  void call(std::int64_t* wrong) {
    if (plan_ != nullptr) {
      if (hora_plan_run(plan_.get(), -1) != HORA_OK) throw Failure{hora_last_error()};
      finish();
      if (wrong != nullptr) *wrong = count_wrong(0);
      return;
    }
    hora_handle handle = 0;
    if (hora_run(&request_, -1, &handle) != HORA_OK) throw Failure{hora_last_error()};
    finish();
    if (wrong != nullptr) *wrong = count_wrong(handle);
    if (handle != 0) hora_release(handle);
  }

  // A GPU's result is ordered on the stream when it is waited for.
  void finish() {
    if (options_.gpu) Gpu::mine().synchronize();
  }

  void fill_input() {
    mine_.fill(options_.gpu ? staging_.data() : input_.data(), given_);
    if (!options_.gpu) return;
    const auto bytes = static_cast<std::size_t>(given_) * width_;
    Gpu::mine().to_device(input_.data(), staging_.data(), bytes);
  }

  // Where the host can read that many elements of a result.
  const char* readable(const void* found, std::int64_t count) {
    if (!options_.gpu) return static_cast<const char*>(found);
    Gpu::mine().to_host(staging_.data(), found, static_cast<std::size_t>(count) * width_);
    return staging_.data();
  }

  std::int64_t checked_call() {
    // In place, the last result has overwritten the input.
    if (same_memory()) fill_input();
    std::int64_t wrong = 0;
    call(&wrong);
    return wrong;
  }

  std::int64_t count_wrong(hora_handle handle) {
    if (options_.operation == HORA_BARRIER) return 0;
    const Pattern reduced(options_.dtype,
                          [&](std::int64_t i) { return reduced_at(options_, size_, i); });
    if (options_.operation == HORA_ALLREDUCE) {
      return reduced.differences(readable(request_.output.data, count_), count_, 0);
    }
    if (options_.operation == HORA_BROADCAST) {
      const Pattern root(options_.dtype,
                         [&](std::int64_t i) { return value_at(options_, options_.root, i); });
      return root.differences(readable(request_.output.data, count_), count_, 0);
    }
    hora_tensor result{};
    if (hora_result(handle, &result) != HORA_OK) throw Failure{hora_last_error()};
    const std::int64_t part = count_ / size_;
    const bool scattered = options_.operation == HORA_REDUCESCATTER;
    // A result of the wrong size counts as wrong in all elements.
    if (result.shape[0] != (scattered ? part : count_)) return count_;
    const char* found = readable(result.data, result.shape[0]);
    if (scattered) return reduced.differences(found, part, rank_ * part);
    std::int64_t wrong = 0;
    for (int from = 0; from < size_; ++from) {
      const Pattern theirs(options_.dtype,
                           [&](std::int64_t i) { return value_at(options_, from, i); });
      // Each rank sends its part number `rank_`, so the pattern starts there.
      const std::int64_t phase = options_.operation == HORA_ALLTOALL ? rank_ * part : 0;
      wrong +=
          theirs.differences(found + static_cast<std::size_t>(from * part) * width_, part, phase);
    }
    return wrong;
  }

  static void summarize(std::vector<double>& times, Row& row) {
    const double mean =
        std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    std::sort(times.begin(), times.end());
    const auto at = [&](double quantile) {
      return times[static_cast<std::size_t>(quantile * static_cast<double>(times.size() - 1))];
    };
    // The slowest rank determines the figure.
    row.mean = agree(mean, HORA_MAX);
    row.median = agree(at(0.5), HORA_MAX);
    row.best = agree(at(0), HORA_MAX);
    row.p99 = agree(at(0.99), HORA_MAX);
  }

  const Options& options_;
  int rank_;
  int size_;
  std::size_t width_;
  // Elements in the buffer that the size refers to.
  std::int64_t count_;
  // Elements of the input.
  std::int64_t given_;
  Memory::MemoryKind place_;
  Memory input_;
  Memory output_;
  Memory staging_;  // what the host fills and reads of them, where they are a GPU's
  Pattern mine_;
  std::int64_t shape_[1] = {0};
  hora_request request_{};
  struct FreePlan {
    void operator()(hora_plan* plan) const { hora_plan_free(plan); }
  };
  std::unique_ptr<hora_plan, FreePlan> plan_;
};

}  // namespace

Row measure(const Options& options, std::int64_t bytes) { return Bench(options, bytes).run(); }

double sum_over_ranks(double mine) { return agree(mine, HORA_SUM); }

}  // namespace hora::perf
