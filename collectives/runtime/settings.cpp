// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "rendezvous/contract/worker_env.h"

namespace hora::collectives {

// Settings from the environment. The first error is kept and reported after everything was read: a
// wrong value never falls back to its default silently.

namespace env = rendezvous::env;

namespace {

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  void text(std::string_view name, std::string& out) {
    if (auto found = variables_(name)) out = std::move(*found);
  }

  template <typename Integer>
  void integer(std::string_view name, Integer& out, std::int64_t least, std::int64_t most) {
    const std::optional<std::string> found = variables_(name);
    if (!found || found->empty()) return;
    const std::optional<std::int64_t> value = whole(*found);
    if (!value || *value < least || *value > most) {
      fail(std::string(name) + "=" + *found + ": expected a whole number " +
           (most == INT64_MAX ? "of at least " + std::to_string(least)
                              : "from " + std::to_string(least) + " to " + std::to_string(most)));
      return;
    }
    out = static_cast<Integer>(*value);
  }

  void number(std::string_view name, double& out, double least, double most) {
    const std::optional<std::string> found = variables_(name);
    if (!found || found->empty()) return;
    double value = 0;
    const char* end = found->data() + found->size();
    const auto parsed = std::from_chars(found->data(), end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end || !(value >= least && value <= most)) {
      char text[96];
      std::snprintf(text, sizeof text, ": expected a number from %g to %g", least, most);
      fail(std::string(name) + "=" + *found + text);
      return;
    }
    out = value;
  }

  // A list such as 0,8,16. Ranges are not Horovod's; accepting some of them here would make a
  // script that works here fail there.
  void numbers(std::string_view name, std::vector<int>& out, int most) {
    const std::optional<std::string> found = variables_(name);
    if (!found || found->empty()) return;
    out.clear();
    const char* at = found->data();
    const char* const end = at + found->size();
    for (;;) {
      int value = 0;
      const auto parsed = std::from_chars(at, end, value);
      const bool ends = parsed.ptr == end;
      if (parsed.ec != std::errc{} || value < 0 || value > most || (!ends && *parsed.ptr != ',')) {
        fail(std::string(name) + "=" + *found + ": expected whole numbers from 0 to " +
             std::to_string(most) + ", separated by commas");
        return;
      }
      out.push_back(value);
      if (ends) return;
      at = parsed.ptr + 1;
    }
  }

  // Any number above 0 is true. A word such as "true" is none, and means off to Horovod.
  void flag(std::string_view name, bool& out) {
    const std::optional<std::string> found = variables_(name);
    if (!found || found->empty()) return;
    const std::optional<std::int64_t> value = whole(*found);
    if (!value) return fail(std::string(name) + "=" + *found + ": expected 0 or 1");
    out = *value > 0;
  }

  // Whether it has a value: an empty one is none.
  bool has(std::string_view name) const { return !variables_(name).value_or("").empty(); }

  // Only the first one: later errors may follow from it.
  void fail(std::string message) {
    if (!error_) error_ = make_error(ErrorCode::kUsage, std::move(message));
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  static std::optional<std::int64_t> whole(const std::string& text) {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
    return value;
  }

  const Variables& variables_;
  std::optional<Error> error_;
};

void read_timeline(Reader& reader, Settings& settings) {
  reader.text("HOROVOD_TIMELINE", settings.timeline);
  reader.flag("HOROVOD_TIMELINE_MARK_CYCLES", settings.timeline_mark_cycles);
  reader.integer("HORA_TIMELINE_LIMIT_MB", settings.timeline_limit_mb, 1, 1 << 20);
  reader.flag("HOROVOD_DISABLE_NVTX_RANGES", settings.no_nvtx_ranges);
}

void read_choice(Reader& reader, std::string_view name, Choice& out) {
  if (!reader.has(name)) return;
  bool on = false;
  reader.flag(name, on);
  out = on ? Choice::kOn : Choice::kOff;
}

void read_stall_check(Reader& reader, Settings& settings) {
  bool disabled = false;
  reader.flag("HOROVOD_STALL_CHECK_DISABLE", disabled);
  settings.stall_check = !disabled;
  std::int64_t seconds = settings.stall_warning.count();
  reader.integer("HOROVOD_STALL_CHECK_TIME_SECONDS", seconds, 0, 1'000'000'000);
  settings.stall_warning = std::chrono::seconds(std::max<std::int64_t>(seconds, 1));
  seconds = settings.stall_shutdown.count();
  reader.integer("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", seconds, 0, 1'000'000'000);
  settings.stall_shutdown = std::chrono::seconds(seconds);
}

// Autotuning does not change a parameter that the user has set.
void read_parameters(Reader& reader, Settings& settings) {
  Parameters& parameters = settings.parameters;
  Tunables& tunable = settings.tunable;
  reader.integer("HOROVOD_FUSION_THRESHOLD", parameters.fusion_threshold_bytes, 0, INT64_MAX);
  double cycle_ms = 0;
  reader.number("HOROVOD_CYCLE_TIME", cycle_ms, 0, 1e6);
  // Horovod's unit is a millisecond with a fraction.
  parameters.cycle_time_us = std::lround(cycle_ms * 1000);
  std::int64_t shm_bytes = 0;  // read by its backend, which cannot refuse it
  reader.integer("HORA_SHM_BYTES", shm_bytes, 0, INT64_MAX);
  reader.integer("HORA_SHM_SMALL_BYTES", parameters.shm_small_bytes, 0, INT32_MAX);
  reader.integer("HORA_SHM_PART_BYTES", parameters.shm_part_bytes, 0, INT32_MAX);
  tunable.fusion = !reader.has("HOROVOD_FUSION_THRESHOLD");
  tunable.cycle_time = !reader.has("HOROVOD_CYCLE_TIME");
  // One switch for both sizes: they are searched together.
  tunable.shm = !reader.has("HORA_SHM_SMALL_BYTES") && !reader.has("HORA_SHM_PART_BYTES");
  tunable.hierarchical = settings.hierarchical_allreduce == Choice::kAuto;
}

void read_autotune(Reader& reader, Settings& settings) {
  AutotuneOptions& options = settings.autotune_options;
  reader.flag("HOROVOD_AUTOTUNE", settings.autotune);
  reader.text("HOROVOD_AUTOTUNE_LOG", settings.autotune_log);
  reader.integer("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", options.warmup_samples, 0, 1'000'000);
  reader.integer("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", options.steps_per_sample, 0, 1'000'000);
  reader.integer("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", options.most_samples, 0, 10'000);
  reader.number("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", options.most_noise, 0, 1);
}

constexpr std::int64_t kManyRanks = 1 << 20;
constexpr int kManyCores = 1 << 16;

void check_place(Reader& reader, const Variables& variables, const std::string& what, int rank,
                 int size) {
  const std::string rank_name = "HOROVOD_" + what + "RANK", size_name = "HOROVOD_" + what + "SIZE";
  const std::string rank_text = rank_name + "=" + std::to_string(rank);
  const std::string size_text = size_name + "=" + std::to_string(size);
  if (size > 1 && !variables(rank_name)) {
    reader.fail(size_text + " but " + rank_name + " is not set: it is a number from 0 to " +
                std::to_string(size - 1) + ", another one in each process; horarun sets it");
  } else if (rank > 0 && !variables(size_name)) {
    reader.fail(rank_text + " but " + size_name + " is not set; horarun sets it");
  } else if (rank >= size) {
    reader.fail(rank_text + " is not below " + size_text);
  }
}

// A host has a part of the ranks, and a rank of each host is one of all.
void check_part(Reader& reader, const std::string& what, int part, int size) {
  if (part <= size) return;
  reader.fail("HOROVOD_" + what + "SIZE=" + std::to_string(part) +
              " is larger than HOROVOD_SIZE=" + std::to_string(size));
}

// With gloo, MPI moves no tensors; horarun sets gloo by default. With ccl, other backends do what
// oneCCL cannot. HORA_BACKENDS is more specific and takes precedence.
void read_cpu_operations(Reader& reader, Settings& settings) {
  reader.text(env::kCpuOperations, settings.cpu_operations);
  for (char& c : settings.cpu_operations) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (settings.cpu_operations.empty()) return;
  if (settings.cpu_operations != "mpi" && settings.cpu_operations != "gloo" &&
      settings.cpu_operations != "ccl") {
    reader.fail("HOROVOD_CPU_OPERATIONS=" + settings.cpu_operations +
                ": expected mpi, gloo or ccl");
  } else if (settings.backends.empty()) {
    // nccl stays: the variable is about tensors in host memory.
    settings.backends = settings.cpu_operations == "mpi" ? "mpi,nccl" : "-mpi";
  }
}

}  // namespace

Result<Settings> parse_settings(const Variables& variables) {
  Settings settings;
  Reader reader(variables);
  reader.integer(env::kRank, settings.rank, 0, kManyRanks);
  reader.integer(env::kSize, settings.size, 1, kManyRanks);
  reader.integer(env::kLocalRank, settings.local_rank, 0, kManyRanks);
  reader.integer(env::kLocalSize, settings.local_size, 1, kManyRanks);
  reader.integer(env::kCrossRank, settings.cross_rank, 0, kManyRanks);
  reader.integer(env::kCrossSize, settings.cross_size, 1, kManyRanks);
  reader.text(env::kHostname, settings.hostname);
  reader.flag(env::kPlacesByMachine, settings.places_by_machine);
  reader.text(env::kRendezvousAddress, settings.rendezvous_address);
  // The usual mistake: variables copied from a job into a shell.
  if (settings.size > 1 && settings.rendezvous_address.empty()) {
    reader.fail("HOROVOD_SIZE=" + std::to_string(settings.size) +
                " but HOROVOD_GLOO_RENDEZVOUS_ADDR is not set: start the program with horarun");
  }
  check_place(reader, variables, "", settings.rank, settings.size);
  check_place(reader, variables, "LOCAL_", settings.local_rank, settings.local_size);
  check_place(reader, variables, "CROSS_", settings.cross_rank, settings.cross_size);
  check_part(reader, "LOCAL_", settings.local_size, settings.size);
  check_part(reader, "CROSS_", settings.cross_size, settings.size);
  reader.integer(env::kRendezvousPort, settings.rendezvous_port, 0, 65535);
  reader.text(env::kRendezvousToken, settings.rendezvous_token);
  reader.text(env::kRendezvousTls, settings.rendezvous_tls);
  reader.text(env::kJobId, settings.job_id);
  reader.text(env::kRound, settings.round);
  reader.integer(env::kWorker, settings.worker, 0, INT32_MAX);
  reader.text(env::kGlooInterface, settings.interface);
  std::int64_t seconds = 30;
  reader.integer(env::kGlooTimeoutSeconds, seconds, 1, 1'000'000);
  settings.start_timeout = std::chrono::seconds(seconds);
  reader.integer("HORA_STAR_RANKS", settings.star_ranks, 0, kManyRanks);
  reader.integer("HOROVOD_CACHE_CAPACITY", settings.cache_capacity, 0, 1 << 24);
  reader.numbers("HOROVOD_THREAD_AFFINITY", settings.thread_affinity, kManyCores);
  // Horovod's name is negative, ours is not.
  bool groups_apart = false;
  reader.flag("HOROVOD_DISABLE_GROUP_FUSION", groups_apart);
  settings.group_fusion = !groups_apart;
  reader.integer("HORA_DETERMINISTIC", settings.deterministic, 0, 1);
  reader.text("HORA_BACKENDS", settings.backends);
  read_cpu_operations(reader, settings);
  reader.text("HOROVOD_LOG_LEVEL", settings.log_level);
  reader.flag("HOROVOD_LOG_HIDE_TIME", settings.log_hide_time);
  reader.text(env::kFlightRecorder, settings.flight_recorder);
  read_timeline(reader, settings);
  read_stall_check(reader, settings);
  read_choice(reader, "HOROVOD_HIERARCHICAL_ALLREDUCE", settings.hierarchical_allreduce);
  read_choice(reader, "HOROVOD_HIERARCHICAL_ALLGATHER", settings.hierarchical_allgather);
  read_parameters(reader, settings);
  read_autotune(reader, settings);
  if (reader.error()) return *reader.error();
  return settings;
}

// docs/reference/environment.md has a row for each of these, and for each that has an effect.

namespace {

// Scripts set variables to their defaults, too; only another value is worth a warning.
enum class Asks { kWhenOn, kWhenOff, kWhenSet };

struct UnusedSetting {
  std::string_view name;
  Asks asks;
  std::string_view reason;
};

// In alphabetical order, as in the printed line.
constexpr UnusedSetting kUnused[] = {
    {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", Asks::kWhenSet, "Adasum has no chunks of that kind"},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", Asks::kWhenOff, "the runtime chooses how it copies on a GPU"},
    {"HOROVOD_CCL_CACHE", Asks::kWhenOn, "oneCCL's operations are not cached"},
    {"HOROVOD_ENABLE_ASYNC_COMPLETION", Asks::kWhenOn,
     "an operation is done when the GPU has finished it"},
    {"HOROVOD_ENABLE_XLA_OPS", Asks::kWhenOn,
     "functions that XLA compiles cannot call collectives"},
    {"HOROVOD_TORUS_ALLREDUCE", Asks::kWhenOn, "the hierarchical allreduce takes its place"},
};

// Like Horovod, which reads the number at the beginning and takes anything else for 0.
bool is_on(const std::string& text) {
  long long value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value > 0;
}

bool asks_for_something(Asks asks, const std::string& text) {
  switch (asks) {
    case Asks::kWhenOn:
      return is_on(text);
    case Asks::kWhenOff:
      return !is_on(text);
    case Asks::kWhenSet:
      return true;
  }
  return true;
}

}  // namespace

std::string describe_unused_settings(const Variables& variables, std::string_view instruction_set) {
  std::string line;
  const auto add = [&line](std::string_view name, const std::string& value,
                           std::string_view reason) {
    line += line.empty() ? "not used here: " : "; ";
    line.append(name).append("=").append(value).append(" (").append(reason).append(")");
  };
  // The kernels pass over what they cannot run, so that one value does for hosts of several kinds.
  const std::string simd = variables("HORA_SIMD").value_or("");
  if (!simd.empty() && simd != instruction_set) {
    add("HORA_SIMD", simd,
        "no instruction set of this processor; it uses " + std::string(instruction_set));
  }
  for (const UnusedSetting& each : kUnused) {
    const auto found = variables(each.name);
    if (!found || found->empty() || !asks_for_something(each.asks, *found)) continue;
    add(each.name, *found, each.reason);
  }
  return line;
}

}  // namespace hora::collectives
