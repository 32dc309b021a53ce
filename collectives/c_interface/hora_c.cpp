// SPDX-License-Identifier: Apache-2.0
// hora.h, over one Communicator per process. No exception leaves this file.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <string>

#include "collectives/backends/registry.h"
#include "collectives/runtime/bootstrap.h"
#include "collectives/runtime/describe.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/process_environment.h"
#include "collectives/runtime/unused_settings.h"
#include "hora/hora.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/os/log.h"

namespace {

using namespace hora::collectives;

std::mutex life_mutex;  // one of init, shutdown, reset at a time
// Every call takes this shared; init and shutdown take it exclusively, for the exchange of one
// pointer only. joining and leaving, which may take long, happen under life_mutex alone.
std::shared_mutex current_mutex;
std::shared_ptr<Communicator> current_communicator;
// Counts the worlds of this process within a job. It is part of the key under which rank 0
// publishes its address, so that a second init never finds the first one's.
int generation = 0;
std::string job_of_generation;

// True in a process that was forked from a rank. The runtime's threads do not exist here, and its
// connections and shared memory belong to the parent, so nothing touches them, not even at exit.
// The child may query its parent's rank, as workers of data loaders do.
std::atomic<bool> forked_from_a_rank{false};
std::shared_ptr<Communicator>& of_the_parent() {
  static auto* const parent = new std::shared_ptr<Communicator>;  // never destroyed
  return *parent;
}

// Per thread, like errno: the pointers that hora_last_error() and hora_describe() return stay valid
// until the same thread calls again.
thread_local std::string last_error;
thread_local std::string described;

// The caller's reference keeps the communicator alive if another thread shuts down.
std::shared_ptr<Communicator> current() {
  const std::shared_lock<std::shared_mutex> lock(current_mutex);
  return current_communicator;
}

std::shared_ptr<Communicator> replace_current(std::shared_ptr<Communicator> next) {
  const std::unique_lock<std::shared_mutex> lock(current_mutex);
  return std::exchange(current_communicator, std::move(next));
}

hora_status fail(hora_status status, std::string text) {
  last_error = std::move(text);
  return status;
}

hora_status not_initialized() {
  if (forked_from_a_rank) {
    return fail(HORA_NOT_INITIALIZED,
                "this process was forked from a rank of the job; collectives work in the rank "
                "itself, not in a child that it forks");
  }
  // In words that fit every interface: Python shows the text as it is.
  return fail(HORA_NOT_INITIALIZED, "init has not been called, or shutdown has");
}

// A deadline beyond the range of the clock means none.
hora::Deadline deadline_after(std::int64_t timeout_ms) {
  if (timeout_ms < 0) return hora::Deadline::max();  // and no look at the clock
  const auto now = hora::Clock::now();
  const auto most = std::chrono::floor<std::chrono::milliseconds>(hora::Deadline::max() - now);
  return timeout_ms >= most.count() ? hora::Deadline::max()
                                    : now + std::chrono::milliseconds(timeout_ms);
}

// Copies `text` only on failure.
hora_status report(hora_status status, const std::string& text) {
  return status == HORA_OK ? HORA_OK : fail(status, text);
}
hora_status report(const Outcome& outcome) { return report(outcome.status, outcome.text); }

// An exception says what failed, but not in which call.
template <typename Function>
hora_status guarded(const char* call, Function&& function) {
  try {
    last_error.clear();
    return function();
  } catch (const std::exception& failure) {
    return fail(HORA_INTERNAL, std::string(call) + ": " + failure.what());
  }
}

template <typename Function>
int ask(Function&& function) {
  const auto communicator = current();
  return communicator == nullptr ? -1 : function(*communicator);
}

// For values that do not change during the life of a world.
template <typename Function>
int ask_place(Function&& function) {
  if (forked_from_a_rank) return function(*of_the_parent());
  return ask(std::forward<Function>(function));
}

// Callers of older headers pass a shorter struct.
std::optional<CallersWorld> callers_world(const hora_options* options) {
  if (options == nullptr || options->struct_size < sizeof(hora_options)) return std::nullopt;
  if (options->size <= 0) return std::nullopt;
  return CallersWorld{options->rank, options->size, options->allgather, options->context};
}

hora_status start(const hora_options* options) {
  std::vector<std::vector<std::int32_t>> sets;
  const std::int32_t* ranks = options == nullptr ? nullptr : options->process_set_ranks;
  for (std::int32_t i = 0; options != nullptr && i < options->process_set_count; ++i) {
    const std::int32_t size = options->process_set_sizes[i];
    if (size < 0) return fail(HORA_INVALID_ARGUMENT, "a process set has a negative size");
    sets.emplace_back(ranks, ranks + size);
    ranks += size;
  }
  // An actor of Ray may join one job after another. Where the one before ended early, its ranks had
  // not all joined equally often.
  std::string job = process_variable(hora::rendezvous::env::kJobId).value_or("");
  if (job != job_of_generation) generation = 0;
  job_of_generation = std::move(job);
  // Settings are read again at each init: an elastic worker gets a new place, and tests change the
  // environment.
  const auto callers = callers_world(options);
  auto from_environment = start_from_environment(std::move(sets), generation, callers);
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
      const std::string unused = describe_unused_settings(process_variable);
      if (!unused.empty()) hora::os::log_warn("settings", unused);
    }
  }
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
  const std::string text = "joining the job: " + error.message;
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
    const std::lock_guard<std::mutex> lock(life_mutex);
    stop();
  } catch (const std::exception&) {
    // The process is exiting: nothing can be reported any more.
  }
}

// Held across fork(), so that the child copies the pointer in a consistent state.
void before_fork() { current_mutex.lock(); }
void after_fork_in_parent() { current_mutex.unlock(); }
void after_fork_in_child() {
  // The thread that holds it does not exist in the child.
  new (&current_mutex) std::shared_mutex;
  if (current_communicator == nullptr) return;
  forked_from_a_rank = true;
  // Moved, not destroyed: destroying it would join threads that do not exist in the child and send
  // messages on the parent's connections.
  std::swap(of_the_parent(), current_communicator);
}

void register_handlers() {
  // Registered at the first init, not when the library is loaded: a process that never joins a job
  // keeps its exit and fork free of this library.
  static const int at_exit = std::atexit(stop_at_exit);
  static const int at_fork = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(at_exit);
  static_cast<void>(at_fork);
}

// Callers of another version may have a smaller or larger hora_request: it grows at its end, and
// struct_size says how much the caller knows. Missing fields are zero, which is their default.
std::vector<hora_request> copies_of(const hora_request* requests, std::int32_t count) {
  const std::uint32_t stride = requests->struct_size;
  std::vector<hora_request> copies(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < copies.size(); ++i) {
    std::memcpy(&copies[i], reinterpret_cast<const char*>(requests) + i * stride,
                std::min<std::size_t>(stride, sizeof(hora_request)));
    copies[i].struct_size = std::min<std::uint32_t>(stride, sizeof(hora_request));
  }
  return copies;
}

}  // namespace

// The world may end before the plan is freed, and nothing of it has to stay for the plan.
struct hora_plan {
  std::weak_ptr<Communicator> communicator;
  Plan operations;
};

namespace {

// Null when the world of the plan has ended; `status` and the last error then say so.
std::shared_ptr<Communicator> world_of(const hora_plan* plan, hora_status& status) {
  if (forked_from_a_rank) {
    status = not_initialized();
    return nullptr;
  }
  if (plan == nullptr) {
    status = fail(HORA_INVALID_ARGUMENT, "the plan is NULL");
    return nullptr;
  }
  // Cheaper than current(), which takes a lock that all calls share. A world that is just being
  // left refuses the operations itself.
  auto communicator = plan->communicator.lock();
  if (communicator == nullptr) {
    status =
        current() == nullptr
            ? not_initialized()
            : fail(HORA_ABORTED, "the plan belongs to a world that has ended: prepare it again");
  }
  return communicator;
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
    const auto news = wait_host_update(std::chrono::milliseconds(timeout_ms));
    if (!news) return fail(HORA_ABORTED, news.error().message);
    *changes = *news;
    return HORA_OK;
  });
}

int hora_is_initialized(void) { return forked_from_a_rank || current() != nullptr ? 1 : 0; }

const char* hora_last_error(void) { return last_error.c_str(); }

const char* hora_status_name(hora_status status) {
  switch (status) {
    case HORA_OK:
      return "ok";
    case HORA_IN_PROGRESS:
      return "in progress";
    case HORA_INVALID_ARGUMENT:
      return "invalid argument";
    case HORA_NOT_INITIALIZED:
      return "not initialized";
    case HORA_MISMATCH:
      return "mismatch";
    case HORA_ABORTED:
      return "aborted";
    case HORA_TIMED_OUT:
      return "timed out";
    case HORA_UNSUPPORTED:
      return "unsupported";
    case HORA_INTERNAL:
      return "internal error";
    case HORA_REMOVED:
      return "removed from the job";
  }
  return "unknown status";
}

const char* hora_version(void) { return HORA_VERSION; }
int hora_abi_version(void) { return HORA_ABI_VERSION; }

int hora_rank(void) {
  return ask_place([](Communicator& c) { return c.world().settings.rank; });
}
int hora_size(void) {
  return ask_place([](Communicator& c) { return c.world().settings.size; });
}
int hora_local_rank(void) {
  return ask_place([](Communicator& c) { return c.world().settings.local_rank; });
}
int hora_local_size(void) {
  return ask_place([](Communicator& c) { return c.world().settings.local_size; });
}
int hora_cross_rank(void) {
  return ask_place([](Communicator& c) { return c.world().settings.cross_rank; });
}
int hora_cross_size(void) {
  return ask_place([](Communicator& c) { return c.world().settings.cross_size; });
}
int hora_is_homogeneous(void) {
  return ask_place([](Communicator& c) { return c.is_homogeneous() ? 1 : 0; });
}

hora_status hora_submit(const hora_request* requests, int32_t count, hora_handle* handles) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (requests == nullptr || count < 1) {
      return fail(HORA_INVALID_ARGUMENT, "hora_submit needs at least one request");
    }
    if (requests->struct_size == sizeof(hora_request)) {
      return report(communicator->submit({requests, static_cast<std::size_t>(count)}, handles));
    }
    return report(communicator->submit(copies_of(requests, count), handles));
  });
}

hora_status hora_poll(hora_handle handle) {
  // A poll is a wait that does not wait, with a status of its own for "not yet".
  const hora_status status = hora_wait(handle, 0);
  return status == HORA_TIMED_OUT ? fail(HORA_IN_PROGRESS, "") : status;
}

hora_status hora_wait(hora_handle handle, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr) return fail(HORA_INVALID_ARGUMENT, "unknown handle");
    // Completed operations need no driver: this is the common path of a poll loop.
    if (!operation->done()) {
      if (!communicator->wait(*operation, deadline_after(timeout_ms))) {
        return fail(HORA_TIMED_OUT, "waited " + std::to_string(timeout_ms) + " ms for '" +
                                        operation->request.name + "'; it is still in flight");
      }
    }
    return report(operation->status, operation->error);
  });
}

const char* hora_error(hora_handle handle) {
  const auto communicator = current();
  if (communicator == nullptr) return "";
  const OperationPtr operation = communicator->find(handle);
  return operation != nullptr && operation->done() ? operation->error.c_str() : "";
}

hora_status hora_result(hora_handle handle, hora_tensor* result) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr || result == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "unknown handle");
    }
    if (!operation->done() || operation->status != HORA_OK || operation->result.data() == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "the operation has no result");
    }
    // Owned by the handle: valid until hora_release().
    result->data = operation->result.data();
    result->shape = operation->result_shape.data();
    result->ndim = static_cast<std::int32_t>(operation->result_shape.size());
    result->dtype = operation->request.dtype;
    result->device = operation->request.device;
    result->reserved = 0;
    return HORA_OK;
  });
}

hora_status hora_received_splits(hora_handle handle, const int64_t** splits, int32_t* count) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr || !operation->done() || operation->status != HORA_OK ||
        operation->request.action != Action::kAlltoall) {
      return fail(HORA_INVALID_ARGUMENT, "the handle is not a finished alltoall");
    }
    *splits = operation->received_splits.data();
    *count = static_cast<std::int32_t>(operation->received_splits.size());
    return HORA_OK;
  });
}

int hora_last_joined(hora_handle handle) {
  return ask([&](Communicator& communicator) {
    const OperationPtr operation = communicator.find(handle);
    if (operation == nullptr || !operation->done() || operation->status != HORA_OK ||
        operation->request.action != Action::kJoin) {
      return -1;
    }
    return static_cast<int>(operation->number);
  });
}

void hora_release(hora_handle handle) {
  if (const auto communicator = current()) communicator->release(handle);
}

hora_status hora_prepare(const hora_request* requests, int32_t count, hora_plan** plan) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (requests == nullptr || count < 1 || plan == nullptr) {
      return fail(HORA_INVALID_ARGUMENT,
                  "hora_prepare needs at least one request and room for the plan");
    }
    // Its operations have their memory and their record for good; a start allocates nothing.
    // Owned until it is handed over: a refusal, or memory that runs out, leaves nothing behind.
    auto made = std::make_unique<hora_plan>();
    made->communicator = communicator;
    const std::vector<hora_request> copies = copies_of(requests, count);
    const Outcome outcome = communicator->prepare(copies, made->operations);
    *plan = outcome.status == HORA_OK ? made.release() : nullptr;
    return report(outcome);
  });
}

hora_status hora_start(hora_plan* plan) {
  return guarded(__func__, [&] {
    hora_status status = HORA_OK;
    const auto communicator = world_of(plan, status);
    return communicator == nullptr ? status : report(communicator->start(plan->operations));
  });
}

hora_status hora_plan_poll(hora_plan* plan) {
  const hora_status status = hora_plan_wait(plan, 0);
  return status == HORA_TIMED_OUT ? fail(HORA_IN_PROGRESS, "") : status;
}

hora_status hora_plan_wait(hora_plan* plan, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    if (plan == nullptr || !plan->operations.started) {
      return fail(HORA_INVALID_ARGUMENT, "the plan has not been started");
    }
    // What has ended needs no world: its outcome can be read after the world has ended, too.
    if (!plan->operations.done()) {
      hora_status status = HORA_OK;
      const auto communicator = world_of(plan, status);
      if (communicator == nullptr) return status;
      if (!communicator->wait(plan->operations, deadline_after(timeout_ms))) {
        return fail(HORA_TIMED_OUT, "waited " + std::to_string(timeout_ms) +
                                        " ms for the plan that begins with '" +
                                        plan->operations.operations.front()->request.name +
                                        "'; it is still in flight");
      }
    }
    const Operation* const failed = plan->operations.failed();
    return failed == nullptr ? HORA_OK : fail(failed->status, failed->error);
  });
}

void hora_plan_free(hora_plan* plan) {
  // In a forked child another thread may have held a lock of the runtime at the fork.
  if (plan == nullptr || forked_from_a_rank) return;
  if (const auto communicator = plan->communicator.lock()) communicator->let_go(plan->operations);
  delete plan;
}

hora_status hora_process_set_add(const int32_t* ranks, int32_t count, int32_t* id) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (ranks == nullptr || count < 1 || id == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "a process set needs at least one rank");
    }
    return report(communicator->add_process_set({ranks, ranks + count}, id));
  });
}

hora_status hora_process_set_remove(int32_t id) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    return report(communicator->remove_process_set(id));
  });
}

int hora_process_set_size(int32_t id) {
  return ask([&](Communicator& communicator) {
    const auto ranks = communicator.engine().sets().ranks(id);
    return ranks ? static_cast<int>(ranks->size()) : -1;
  });
}

int hora_process_set_rank(int32_t id) {
  return ask([&](Communicator& communicator) {
    const auto ranks = communicator.engine().sets().ranks(id);
    if (!ranks) return -1;
    const auto mine = std::find(ranks->begin(), ranks->end(), communicator.world().settings.rank);
    return mine == ranks->end() ? -1 : static_cast<int>(mine - ranks->begin());
  });
}

int hora_process_set_ids(int32_t* ids, int32_t capacity) {
  return ask([&](Communicator& communicator) {
    const std::vector<std::int32_t> all = communicator.engine().sets().ids();
    // The count is returned even if `capacity` is too small, so that a caller can ask twice.
    for (std::size_t i = 0; ids != nullptr && i < all.size(); ++i) {
      if (static_cast<std::int32_t>(i) < capacity) ids[i] = all[i];
    }
    return static_cast<int>(all.size());
  });
}

int hora_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity) {
  return ask([&](Communicator& communicator) {
    const auto all = communicator.engine().sets().ranks(id);
    if (!all) return -1;
    for (std::size_t i = 0; ranks != nullptr && i < all->size(); ++i) {
      if (static_cast<std::int32_t>(i) < capacity) ranks[i] = (*all)[i];
    }
    return static_cast<int>(all->size());
  });
}

hora_status hora_timeline_start(const char* path, int mark_cycles) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (path == nullptr || *path == '\0') {
      return fail(HORA_INVALID_ARGUMENT, "hora_timeline_start needs the path of a file");
    }
    return report(communicator->start_timeline(path, mark_cycles != 0));
  });
}

hora_status hora_timeline_stop(void) {
  return guarded(__func__, [] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    communicator->stop_timeline();
    return HORA_OK;
  });
}

const char* hora_describe(void) {
  try {
    described = describe(current().get());
  } catch (const std::exception&) {
    described = "{}";
  }
  return described.c_str();
}

int hora_backend_built(const char* name) {
  const BackendRow* row = name == nullptr ? nullptr : find_backend_row(name);
  return row != nullptr && load_backend(*row) ? 1 : 0;
}

int hora_backend_enabled(const char* name) {
  if (name == nullptr) return 0;
  const auto communicator = current();
  if (communicator == nullptr) return 0;
  const auto enabled = communicator->engine().backends().enabled();
  return std::find(enabled.begin(), enabled.end(), name) != enabled.end() ? 1 : 0;
}

}  // extern "C"
