// SPDX-License-Identifier: Apache-2.0
// Loads one backend of libhora and lets a single rank reduce a few numbers with it.
#include <dlfcn.h>

#include <array>
#include <chrono>

#include "apps/selftest/selftest.h"
#include "collectives/backends/registry.h"

namespace hora::selftest {

namespace {

using namespace collectives;

constexpr std::int64_t kNumbers = 64;
constexpr std::int64_t kTimeoutMs = 30'000;

// The services of a group with one rank: it receives what it gives.
class Alone final : public Services {
 public:
  bool exchange(const void* data, std::size_t bytes, bool, const void* const** received,
                const std::size_t** lengths, ErrorText&) noexcept override {
    data_ = data;
    bytes_ = bytes;
    *received = &data_;
    *lengths = &bytes_;
    return true;
  }
  const char* setting(const char*) noexcept override { return nullptr; }

 private:
  const void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class RecordedNotices final : public Notices {
 public:
  void warn(const char* sentence) noexcept override { sentences.push_back(sentence); }
  Json sentences = Json::array();
};

// An allreduce with one rank, in place, which doubles the numbers: a backend that scales with code
// of its own shows whether that works. `data` is where the backend wants it.
bool add_up(Backend& backend, void* data, std::int32_t device, ErrorText& error) {
  Piece piece;
  piece.input = data;
  piece.output = data;
  piece.count = kNumbers;
  Step step;
  step.operation = HORA_ALLREDUCE;
  step.dtype = HORA_FLOAT32;
  step.device = device;
  step.prescale = 2.0;
  step.pieces = &piece;
  step.piece_count = 1;
  std::uint64_t ticket = 0;
  Progress progress = backend.execute(step, &ticket, error);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  while (progress == Progress::kPending) {
    if (std::chrono::steady_clock::now() > deadline) return error.set("the sum does not come");
    progress = backend.poll(ticket, error);
  }
  return progress == Progress::kDone;
}

bool run_alone(const BackendDescriptor& backend, const ReportStage& at, RecordedNotices& notices,
               ErrorText& error) {
  Alone services;
  const std::int32_t self = 0;
  GroupContext group;
  group.ranks = &self;
  group.hosts = &self;
  group.timeout_ms = kTimeoutMs;
  group.address = "127.0.0.1";
  group.job = "selftest";
  group.services = &services;
  group.notices = &notices;
  at("starting it");
  Backend* const made = backend.create(group, error);
  if (made == nullptr) return false;
  at("adding numbers");
  std::array<float, kNumbers> numbers;
  numbers.fill(1.5F);
  bool good = false;
  // A backend with its own memory (NCCL) gets a copy on the GPU.
  if (backend.allocate == nullptr) {
    good = add_up(*made, numbers.data(), HORA_CPU_DEVICE, error) &&
           (numbers.back() == 3.0F || error.set("the sum is wrong"));
  } else {
    void* const memory = backend.allocate(0, sizeof numbers, numbers.data());
    good = memory == nullptr ? error.set("the GPU has no memory to give")
                             : add_up(*made, memory, 0, error);
    if (memory != nullptr) backend.release(0, memory);
  }
  made->destroy();
  return good;
}

}  // namespace

Json test_backend(const std::string& id, const std::string& vendor_library, const ReportStage& at) {
  Json out;
  const BackendRow* const row = find_backend_row(id);
  if (row == nullptr || row->why_not_built != nullptr) {
    out["absent"] = row == nullptr ? "no such backend" : row->why_not_built;
    return out;
  }
  at("loading it");
  // Loading the vendor's library first makes the backend use that copy.
  if (!vendor_library.empty() &&
      ::dlopen(vendor_library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* const text = ::dlerror();
    out["error"] = text == nullptr ? vendor_library + " cannot be loaded" : text;
    return out;
  }
  const auto descriptor = load_backend(*row);
  if (!descriptor) {
    // A site without such a library has no fault.
    out["absent"] = descriptor.error().message;
    return out;
  }
  ErrorText error;
  // MPI's probe refuses outside a job that an MPI launcher has started.
  if (id != "mpi" && !(*descriptor)->probe(ProbeContext{}, error)) {
    out["absent"] = error.text;
    return out;
  }
  out["version"] = (*descriptor)->version();
  // This backend moves bytes between two ranks, so one alone cannot test it.
  if ((*descriptor)->create == nullptr) return out;
  RecordedNotices notices;
  if (!run_alone(**descriptor, at, notices, error)) out["error"] = error.text;
  if (!notices.sentences.empty()) out["notes"] = notices.sentences;
  return out;
}

}  // namespace hora::selftest
