// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/mpi/session.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "collectives/backends/mpi_launch/launched.h"

namespace hora::collectives::mpi {

namespace {

// Their interfaces to programs (ABI) have these names, whatever the version.
#ifdef OPEN_MPI
constexpr const char* kKind = "Open MPI";
constexpr const char* kFiles[] = {"libmpi.so.40"};
#else
constexpr const char* kKind = "MPICH";
constexpr const char* kFiles[] = {"libmpi.so.12", "libmpich.so.12"};
#endif

// Constant-initialised, and without a destructor: MPI is used until the process ends.
constinit Library opened{};

template <typename Symbol>
bool find(void* handle, const char* name, Symbol& symbol, ErrorText& why_not) {
  symbol = reinterpret_cast<Symbol>(::dlsym(handle, name));
  return symbol != nullptr || why_not.set("%s cannot be used: %s", kKind, ::dlerror());
}

bool open_once(ErrorText& why_not) {
  void* handle = nullptr;
  for (const char* const file : kFiles) {
    // RTLD_LOCAL: a program may use an MPI of another kind.
    if (handle == nullptr) handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return why_not.set("%s cannot be loaded: %s", kKind, ::dlerror());
#define HORA_FIND(name) \
  if (!find(handle, #name, opened.name, why_not)) return false;
  HORA_MPI_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
#ifdef OPEN_MPI
#define HORA_FIND(type, name, constant, object) \
  if (!find(handle, #object, opened.name, why_not)) return false;
#else
#define HORA_FIND(type, name, constant, object) opened.name = constant;
#endif
  HORA_MPI_CONSTANTS(HORA_FIND)
#undef HORA_FIND
  return true;
}

}  // namespace

bool open_library(ErrorText& why_not) {
  static std::once_flag once;
  static bool good = false;
  static ErrorText reason;
  std::call_once(once, [] { good = open_once(reason); });
  if (!good) why_not = reason;
  return good;
}

const Library& site = opened;

// MPI can be initialised once per process and never again after its end, so its state is global.
// Three cases decide what happens at exit: the program owns MPI (Hora does nothing), Hora owns it
// (finish() finalises it), or a wait was abandoned or the world broken off (then MPI_Finalize could
// wait for ranks that are gone, so Hora leaves it out).

namespace {

// The state of MPI in this process. Constant-initialised, so it is valid before the first
// constructor and after the last destructor. `mutex` guards the members.
struct State {
  std::mutex mutex;
  bool started = false;
  bool ours = false;  // Hora called MPI_Init
  pid_t process = 0;  // the process that called it; a forked child does not own MPI
  int thread_level = MPI_THREAD_SINGLE;
  MPI_Comm world{};  // once started
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  char version[MPI_MAX_LIBRARY_VERSION_STRING + 64] = {};
};
State state;
std::atomic<bool> given_up{false};
std::atomic<bool> broken_off{false};
std::atomic<int> ranks_on_host{1};

constexpr const char* kLevelNames[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                       "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};

// The constants are ordered, but MPI does not define their values.
const char* level_name(int level) {
  if (level <= MPI_THREAD_SINGLE) return kLevelNames[0];
  if (level <= MPI_THREAD_FUNNELED) return kLevelNames[1];
  return level <= MPI_THREAD_SERIALIZED ? kLevelNames[2] : kLevelNames[3];
}

bool is_on(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::atoi(value) > 0;
}

bool initialise_once(ErrorText& error) {
  int flag = 0;
  if (!check(site.MPI_Finalized(&flag), "MPI_Finalized", error)) return false;
  if (flag != 0) return error.set("this process has already called MPI_Finalize");
  if (!check(site.MPI_Initialized(&flag), "MPI_Initialized", error)) return false;
  if (flag != 0) {
    if (!check(site.MPI_Query_thread(&state.thread_level), "MPI_Query_thread", error)) return false;
  } else {
    // The runtime's thread differs from the one that runs this, so SERIALIZED is the minimum;
    // MULTIPLE lets the program use MPI at the same time.
    const int wanted =
        is_on("HOROVOD_MPI_THREADS_DISABLE") ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
    const int code = site.MPI_Init_thread(nullptr, nullptr, wanted, &state.thread_level);
    if (!check(code, "MPI_Init_thread", error)) return false;
    state.ours = true;
    state.process = getpid();
  }
  if (state.thread_level < MPI_THREAD_SERIALIZED) {
    return error.set(
        "MPI was initialised with %s, but the runtime has a thread of its own: initialise it with "
        "MPI_THREAD_MULTIPLE (mpi4py does), or leave it to Hora",
        level_name(state.thread_level));
  }
  return true;
}

// Duplicates MPI_COMM_WORLD without blocking, so that a missing process delays the others only
// until the deadline.
bool make_world(Deadline deadline, ErrorText& error) {
  static const std::atomic<bool> never{false};
  MPI_Request request = site.request_null;
  if (!check(site.MPI_Comm_idup(site.comm_world, &state.world, &request), "MPI_Comm_idup", error) ||
      !wait(request, never, deadline, "MPI_Comm_idup", error)) {
    return false;
  }
  // From this communicator and all that derive from it, errors return as codes; MPI's default would
  // end the process.
  return check(site.MPI_Comm_set_errhandler(state.world, site.errors_return),
               "MPI_Comm_set_errhandler", error);
}

// Runs after every handler of atexit(), libhora's included, so the last communicator is gone; the
// library, opened after this module, ends after it. A launcher takes a process that ends without
// MPI_Finalize for a crash.
__attribute__((destructor)) void finish() {
  if (!state.ours || given_up || broken_off || state.process != getpid()) return;
  int finalized = 0;
  if (site.MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
  if (state.started) site.MPI_Comm_free(&state.world);
  site.MPI_Finalize();
}

// Waits between two looks at a request: spinning, then yielding, then sleeping.
void pause(int round, bool may_spin) {
  constexpr int kSpins = 2'000;
  constexpr int kYields = 2'000'000;
  if (may_spin && round < kSpins) return;
  if (round < kYields) {
    sched_yield();
  } else {  // a peer is stopped or very slow
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool has_cores_to_spin() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return false;
  return CPU_COUNT(&cores) >= ranks_on_host.load(std::memory_order_relaxed);
}

}  // namespace

bool check(int code, const char* call, ErrorText& error) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (site.MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    std::snprintf(text, sizeof text, "error %d", code);
  }
  return error.set("%s: %s", call, text);
}

bool is_launched(ErrorText& seen) {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  // MPICH's launcher and Open MPI's library do not understand each other: each process would be
  // alone.
  if (is_set("PMI_FD") && !is_set("OMPI_COMM_WORLD_SIZE") && !is_set("PMIX_NAMESPACE") &&
      std::strncmp(library_name(), "Open MPI", 8) == 0) {
    return seen.set("an MPICH launcher (PMI-1) started this process, but the library is %s",
                    library_name());
  }
  if (const char* const name = launcher_variable()) {
    seen.set("%s is set", name);
    return true;
  }
  int flag = 0;
  if (site.MPI_Initialized(&flag) == MPI_SUCCESS && flag != 0) {
    seen.set("the program has initialised MPI");
    return true;
  }
  return seen.set("%s", kNotLaunched);
}

int launched_size() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

bool initialise(ErrorText& error) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (given_up) {
    return error.set(
        "a job of this process ended in the middle of an MPI operation, so MPI cannot "
        "be used again; restart the process");
  }
  return state.started || initialise_once(error);
}

bool start(Deadline deadline, ErrorText& error) {
  if (!initialise(error)) return false;
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.started = state.started || make_world(deadline, error);
  return state.started;
}

MPI_Comm world() { return state.world; }

const char* library_name() {
  const std::lock_guard<std::mutex> lock(state.mutex);
  int length = 0;
  if (site.MPI_Get_library_version(state.library, &length) != MPI_SUCCESS) return "";
  state.library[std::strcspn(state.library, ",\n")] = '\0';  // build details follow
  return state.library;
}

const char* version() {
  const char* const library = library_name();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.started) return library;
  std::snprintf(state.version, sizeof state.version, "%s, %s", library,
                level_name(state.thread_level));
  return state.version;
}

bool wait(MPI_Request& request, const std::atomic<bool>& aborted, Deadline deadline,
          const char* what, ErrorText& error) {
  // MPI progresses only inside its calls, so the loop has to keep calling MPI_Test.
  const bool may_spin = has_cores_to_spin();
  for (int round = 0;; ++round) {
    int done = 0;
    if (!check(site.MPI_Test(&request, &done, MPI_STATUS_IGNORE), what, error)) return false;
    if (done != 0) return true;
    if (aborted.load(std::memory_order_relaxed)) {
      // MPI cannot cancel a collective: the request stays under way.
      given_up = true;
      return error.set("%s: the job is ending", what);
    }
    // Reading the clock costs as much as a look: only once in a while.
    if (round % 1024 == 1023 && Clock::now() > deadline) {
      given_up = true;
      return error.set("%s: timed out waiting for the other processes", what);
    }
    pause(round, may_spin);
  }
}

bool is_given_up() { return given_up; }

void set_broken_off(bool broken) { broken_off = broken; }

void set_ranks_on_host(int count) { ranks_on_host = count; }

}  // namespace hora::collectives::mpi
