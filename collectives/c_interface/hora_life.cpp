// SPDX-License-Identifier: Apache-2.0
// hora.h: how a process joins a world and leaves it.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>

#include "collectives/c_interface/calls.h"
#include "collectives/kernels/kernels.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/launched_world.h"
#include "collectives/runtime/rank_location.h"
#include "collectives/runtime/settings.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/os/log.h"

namespace {

using namespace hora::collectives;

// One of init, shutdown, reset at a time. Joining and leaving, which may take long, hold nothing
// that other calls need.
std::mutex life_mutex;
// Whether the one that holds it joins a world.
std::atomic<bool> joining{false};

struct Joining {
  Joining() { joining = true; }
  ~Joining() { joining = false; }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;
};

// Counts the worlds of this process within a job. It is part of the key under which rank 0
// publishes its address, so that a second init never finds the first one's.
int generation = 0;
std::string job_of_generation;

// Callers of older headers pass a shorter struct.
std::optional<CallersWorld> callers_world(const hora_options* options) {
  if (options == nullptr || options->struct_size < sizeof(hora_options)) return std::nullopt;
  if (options->size <= 0) return std::nullopt;
  return CallersWorld{options->rank, options->size, options->allgather, options->context};
}

// The static process sets of the options; nullopt: they are wrong, and last_error() says how.
std::optional<std::vector<std::vector<std::int32_t>>> static_sets(const hora_options* options) {
  std::vector<std::vector<std::int32_t>> sets;
  if (options == nullptr || options->process_set_count == 0) return sets;
  const std::int32_t* ranks = options->process_set_ranks;
  if (options->process_set_count < 0 || ranks == nullptr || options->process_set_sizes == nullptr) {
    last_error() = "hora_options: process sets need a count, their sizes and their ranks";
    return std::nullopt;
  }
  for (std::int32_t i = 0; i < options->process_set_count; ++i) {
    const std::int32_t size = options->process_set_sizes[i];
    if (size < 0) {
      last_error() = "hora_options: a process set has a negative size";
      return std::nullopt;
    }
    sets.emplace_back(ranks, ranks + size);
    ranks += size;
  }
  return sets;
}

// In an elastic job, init then asks for a place in the next epoch (hora/basics.py), so this message
// is the only one about what the ranks have waited for. They all know the same.
void report_missed_epoch(const hora::Error& error, int rank) {
  if (rank != 0 || error.code != hora::ErrorCode::kTimedOut || !in_elastic_job()) return;
  hora::os::log_warn("elastic", error.message + "; the ranks meet again");
}

// Descriptors or memory that this process lacks. It would lack them in the next epoch, too.
bool is_own_lack(const hora::Error& error) {
  return error.errnum == EMFILE || error.errnum == ENFILE || error.errnum == ENOMEM;
}

hora_status start(const hora_options* options) {
  const Joining now;
  auto sets = static_sets(options);
  if (!sets) return HORA_INVALID_ARGUMENT;
  // An actor of Ray may join one job after another. Where the one before ended early, its ranks had
  // not all joined equally often.
  std::string job = process_variable(hora::rendezvous::env::kJobId).value_or("");
  if (job != job_of_generation) generation = 0;
  job_of_generation = std::move(job);
  // Settings are read again at each init: an elastic worker gets a new place, and tests change the
  // environment.
  const auto callers = callers_world(options);
  auto from_environment = start_from_environment(*std::move(sets), generation, callers);
  if (from_environment && from_environment->removed) {
    return fail(HORA_REMOVED,
                "this process is no longer needed: the elastic job continues without it");
  }
  if (from_environment) {
    const auto level = hora::os::parse_log_level(from_environment->settings.log_level);
    hora::os::set_log_level(level.value_or(hora::os::LogLevel::kWarn));
    hora::os::set_log_time(!from_environment->settings.log_hide_time);
    // Once for the job: all ranks have the same variables.
    if (generation == 0 && from_environment->settings.rank == 0) {
      const auto unused = describe_unused_settings(process_variable, kernels().instruction_set);
      if (!unused.empty()) hora::os::log_warn("settings", unused);
      // A job is not to fail for it, as it does for other values that are none.
      if (const std::string& given = from_environment->settings.log_level;
          !level && !given.empty()) {
        hora::os::log_warn("settings", "HOROVOD_LOG_LEVEL=" + given +
                                           " is taken for warning: expected trace, debug, info, "
                                           "warning, error or fatal");
      }
    }
  }
  const int rank = from_environment ? from_environment->settings.rank : -1;
  hora::Result<std::unique_ptr<Communicator>> joined =
      from_environment ? Communicator::join(std::move(*from_environment))
                       : hora::Result<std::unique_ptr<Communicator>>(from_environment.error());
  // Also after a failure: the other ranks have counted this attempt, too. A world that the program
  // has chosen meets at a rendezvous of its own, and not all ranks count it.
  if (!callers) ++generation;
  if (joined) {
    replace_current(std::move(*joined));
    return HORA_OK;
  }
  const hora::Error& error = joined.error();
  report_missed_epoch(error, rank);
  const std::string text = "joining the job: " + error.message;
  if (is_own_lack(error)) return fail(HORA_UNSUPPORTED, text);
  switch (error.code) {
    case hora::ErrorCode::kUsage:
      return fail(HORA_INVALID_ARGUMENT, text);
    case hora::ErrorCode::kTimedOut:
      return fail(HORA_TIMED_OUT, text);
    default:
      return fail(HORA_ABORTED, text);
  }
}

void stop() {
  // New calls fail as of now; those under way keep the communicator alive until they return.
  if (const auto before = replace_current(nullptr)) before->leave();
}

// A program that exits without hora_shutdown() still leaves the job in order.
void stop_at_exit() {
  try {
    if (forked_from_a_rank) return;
    // One that joins has nothing to leave, and the others may come late or never. Its thread ends
    // with the process, or is this one: the exchange of the caller's world may exit.
    if (joining) return;
    const std::lock_guard<std::mutex> lock(life_mutex);
    stop();
  } catch (const std::exception&) {
    // The process is exiting: nothing can be reported any more.
  }
}

// The thread that joins or leaves in the parent does not exist here.
void free_life_in_child() noexcept {
  unlock_current_in_child();
  new (&life_mutex) std::mutex;
  joining = false;
}

void register_handlers() {
  // Registered at the first init, not when the library is loaded: a process that never joins a job
  // keeps its exit and fork free of this library.
  static const int at_exit = std::atexit(stop_at_exit);
  static const int at_fork = pthread_atfork(lock_current, unlock_current, free_life_in_child);
  static_cast<void>(at_exit);
  static_cast<void>(at_fork);
}

}  // namespace

extern "C" {

hora_status hora_init(const hora_options* options) {
  return guarded(__func__, [&] {
    if (forked_from_a_rank) return not_initialized();
    const std::lock_guard<std::mutex> lock(life_mutex);
    if (current() != nullptr) return HORA_OK;
    register_handlers();
    return start(options);
  });
}

hora_status hora_shutdown(void) {
  return guarded(__func__, [] {
    if (forked_from_a_rank) return HORA_OK;
    const std::lock_guard<std::mutex> lock(life_mutex);
    stop();
    return HORA_OK;
  });
}

hora_status hora_reset(void) {
  return guarded(__func__, [] {
    if (forked_from_a_rank) return not_initialized();
    const std::lock_guard<std::mutex> lock(life_mutex);
    stop();
    return start(nullptr);
  });
}

hora_status hora_wait_host_update(int64_t timeout_ms, int32_t* changes) {
  return guarded(__func__, [&] {
    if (changes == nullptr || timeout_ms < 0) {
      return fail(HORA_INVALID_ARGUMENT,
                  "hora_wait_host_update needs timeout_ms >= 0 and changes != NULL");
    }
    *changes = 0;
    if (!in_elastic_job())
      return fail(HORA_UNSUPPORTED, "this process is not a worker of an elastic job");
    const auto updates = wait_host_update(std::chrono::milliseconds(timeout_ms));
    if (!updates) return fail(HORA_ABORTED, updates.error().message);
    *changes = *updates;
    return HORA_OK;
  });
}

int hora_is_initialized(void) { return forked_from_a_rank || current() != nullptr ? 1 : 0; }

}  // extern "C"
