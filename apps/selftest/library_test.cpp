// SPDX-License-Identifier: Apache-2.0
// Loads libhora as a framework would and reduces a few numbers with the ranks that the environment
// describes.
#include <dlfcn.h>

#include <array>
#include <chrono>

#include "apps/selftest/selftest.h"
#include "collectives/backends/registry.h"
#include "hora/hora.h"

namespace hora::selftest {

namespace {

constexpr std::int64_t kNumbers = 1000;
constexpr std::int64_t kTimeoutMs = 60'000;  // hora-doctor's is shorter

struct Library {
  decltype(&::hora_version) version = nullptr;
  decltype(&::hora_init) init = nullptr;
  decltype(&::hora_shutdown) shutdown = nullptr;
  decltype(&::hora_last_error) last_error = nullptr;
  decltype(&::hora_rank) rank = nullptr;
  decltype(&::hora_size) size = nullptr;
  decltype(&::hora_submit) submit = nullptr;
  decltype(&::hora_wait) wait = nullptr;
  decltype(&::hora_release) release = nullptr;
  decltype(&::hora_backend_enabled) backend_enabled = nullptr;
};

Json failed(const std::string& text) {
  Json out;
  out["error"] = text;
  return out;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// Returns what is missing; empty if nothing is.
std::string load(Library& hora) {
  const std::string path = collectives::library_folder() + "/../lib/libhora.so";
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr ||
      !(find(handle, "hora_version", hora.version) && find(handle, "hora_init", hora.init) &&
        find(handle, "hora_shutdown", hora.shutdown) &&
        find(handle, "hora_last_error", hora.last_error) && find(handle, "hora_rank", hora.rank) &&
        find(handle, "hora_size", hora.size) && find(handle, "hora_submit", hora.submit) &&
        find(handle, "hora_wait", hora.wait) && find(handle, "hora_release", hora.release) &&
        find(handle, "hora_backend_enabled", hora.backend_enabled))) {
    const char* const text = ::dlerror();
    return text == nullptr ? "it cannot be loaded" : text;
  }
  return {};
}

// Sums up the rank number plus one over all ranks. Returns an empty text if the result is right.
std::string add_up(const Library& hora) {
  std::array<float, kNumbers> numbers;
  numbers.fill(static_cast<float>(hora.rank() + 1));
  const std::int64_t shape = kNumbers;
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = HORA_ALLREDUCE;
  request.name = "selftest";
  request.reduce_op = HORA_SUM;
  request.prescale = 1.0;
  request.postscale = 1.0;
  request.input = {numbers.data(), &shape, 1, HORA_FLOAT32, HORA_CPU_DEVICE, 0};
  request.output = request.input;
  hora_handle handle = 0;
  hora_status status = hora.submit(&request, 1, &handle);
  if (status == HORA_OK) status = hora.wait(handle, kTimeoutMs);
  if (status != HORA_OK) return hora.last_error();
  hora.release(handle);
  const auto size = static_cast<float>(hora.size());
  for (const float number : numbers) {
    if (number != size * (size + 1) / 2) return "the sum of all ranks is wrong";
  }
  return {};
}

}  // namespace

Json test_library(const ReportStage& at) {
  at("loading libhora.so");
  Library hora;
  if (const std::string missing = load(hora); !missing.empty()) return failed(missing);
  const auto began = std::chrono::steady_clock::now();
  at("meeting the other ranks");
  if (hora.init(nullptr) != HORA_OK) return failed(hora.last_error());
  at("adding numbers");
  if (const std::string wrong = add_up(hora); !wrong.empty()) return failed(wrong);
  Json out;
  out["version"] = hora.version();
  out["ranks"] = hora.size();
  out["backends"] = Json::array();
  for (const collectives::BackendRow& row : collectives::backend_rows()) {
    if (hora.backend_enabled(row.id) == 1) out["backends"].push_back(row.id);
  }
  at("leaving the job");
  // Some libraries crash or hang only when they are left.
  hora.shutdown();
  out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

}  // namespace hora::selftest
