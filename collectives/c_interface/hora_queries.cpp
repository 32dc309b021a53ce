// SPDX-License-Identifier: Apache-2.0
// hora.h: the place of this process in its world, process sets, the timeline, and what people ask.
#include <algorithm>

#include "collectives/backends/registry.h"
#include "collectives/c_interface/calls.h"
#include "collectives/runtime/request_check.h"

namespace {

using namespace hora::collectives;

// For values that do not change during the life of a world.
template <typename Function>
int ask_place(Function&& function) {
  if (forked_from_a_rank) return function(*of_the_parent());
  return ask(std::forward<Function>(function));
}

using MakeSet = Outcome (Communicator::*)(std::vector<std::int32_t> ranks, std::int32_t* id);

hora_status make_set(const char* caller, MakeSet make, const int32_t* ranks, int32_t count,
                     int32_t* id) {
  return guarded(caller, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (ranks == nullptr || count < 1 || id == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "a process set needs at least one rank");
    }
    return report(((*communicator).*make)({ranks, ranks + count}, id));
  });
}

}  // namespace

extern "C" {

const char* hora_last_error(void) { return last_error().c_str(); }

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

hora_status hora_process_set_add(const int32_t* ranks, int32_t count, int32_t* id) {
  return make_set(__func__, &Communicator::add_process_set, ranks, count, id);
}

hora_status hora_process_set_of(const int32_t* ranks, int32_t count, int32_t* id) {
  return make_set(__func__, &Communicator::process_set_of, ranks, count, id);
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
  thread_local std::string described;
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
