// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/host_stage.h"

#include <mutex>
#include <numeric>
#include <set>

#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/registry.h"
#include "collectives/types.h"

namespace hora::collectives {

// Asked once for each device: the answer costs a call into the driver, and a device that was there
// does not go away.

namespace {

// A device that gives memory exists. One whose memory is full gives none, and copies all the same.
bool is_there(std::int32_t device, ErrorText& why_not) {
  const BackendDescriptor* const owner = device_memory();
  if (owner == nullptr) return why_not.set("nothing here knows tensors of a GPU");
  if (void* const memory = owner->allocate(device, 1, nullptr); memory != nullptr) {
    owner->release(device, memory);
    return true;
  }
  return owner->to_host(device, nullptr, 0, why_not);
}

}  // namespace

// A module whose library this process has no use for is not loaded for the question.
const BackendDescriptor* device_memory() {
  for (const BackendRow& row : backend_rows()) {
    ErrorText why_not;
    if (!is_called_for(row, why_not)) continue;
    const auto descriptor = load_backend(row);
    if (descriptor && (*descriptor)->allocate != nullptr) return *descriptor;
  }
  return nullptr;
}

Status check_device(std::int32_t device) {
  // Held during the call into the driver: a second thread has to wait for the answer anyway.
  static std::mutex mutex;
  static std::set<std::int32_t> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (known.count(device) != 0) return Ok{};
  ErrorText why_not;
  if (!is_there(device, why_not)) {
    return make_error(ErrorCode::kUsage,
                      "device " + std::to_string(device) +
                          " cannot be used (host memory is device -1): " + why_not.text);
  }
  known.insert(device);
  return Ok{};
}

// Copies in, the operation of a backend for host memory, copies out. Inputs are copied when their
// producer is done, so the step sees what the framework has written.

namespace {

constexpr std::int64_t kAlignment = 256;  // of a copy: a cache line of any device

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t width_of(const Step& step) {
  return static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
}

// An allreduce or a broadcast: input and output have the same size.
bool is_elementwise(const Step& step) {
  return step.operation == HORA_ALLREDUCE || step.operation == HORA_BROADCAST;
}

}  // namespace

// In elements. Sums of counts that have passed a check when the result was allocated.
std::int64_t HostStage::received(const Step& step, const Piece& piece) const {
  if (step.operation == HORA_REDUCESCATTER) return step.receive_counts[set_index_];
  if (step.operation == HORA_ALLGATHER || step.operation == HORA_ALLTOALL) {
    return std::accumulate(step.receive_counts, step.receive_counts + set_size_, INT64_C(0));
  }
  return piece.count;
}

bool HostStage::bring(Step& step, std::vector<Piece>& pieces, const std::vector<bool>& is_here,
                      ErrorText& error) {
  const Activity activity(step, "MEMCPY_IN_HOST_BUFFER");
  device_ = step.device;
  const std::int64_t width = width_of(step);
  const bool in_place = is_elementwise(step);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (is_here[i]) continue;
    bytes += rounded(pieces[i].count * width);
    if (!in_place) bytes += rounded(received(step, pieces[i]) * width);
  }
  // Neither a full memory here nor a failing copy is another rank's doing.
  error.own = true;
  const auto all = static_cast<std::size_t>(bytes == 0 ? kAlignment : bytes);
  memory_ = {copier_->allocate_on_host(device_, all, error), ReleaseOnHost{copier_, device_}};
  if (memory_ == nullptr) return false;
  auto* place = static_cast<char*>(memory_.get());
  // Write-only memory, too, has to wait for the work on it that the framework has queued.
  const bool is_read = step.operation != HORA_BROADCAST || step.root == set_index_;
  std::vector<HostCopy> inputs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (is_here[i]) continue;
    Piece& piece = pieces[i];
    const auto sent = static_cast<std::size_t>(piece.count * width);
    const std::int64_t result = received(step, piece) * width;
    inputs.push_back({const_cast<void*>(piece.input), place, is_read ? sent : 0, piece.stream});
    piece.input = place;
    if (!in_place) place += rounded(piece.count * width);
    results_.push_back({piece.output, place, static_cast<std::size_t>(result), nullptr});
    piece.output = place;
    piece.stream = nullptr;
    place += rounded(result);
  }
  if (!copier_->to_host(device_, inputs.data(), static_cast<std::int64_t>(inputs.size()), error)) {
    return false;
  }
  error.own = false;
  step.device = HORA_CPU_DEVICE;
  step.pieces = pieces.data();
  return true;
}

// Stand-ins of a rank that has joined were not copied in, and nothing goes back.
bool HostStage::take_back(const Step& step, ErrorText& error) {
  const Activity activity(step, "MEMCPY_OUT_HOST_BUFFER");
  if (!copier_->to_device(device_, results_.data(), static_cast<std::int64_t>(results_.size()),
                          error)) {
    error.own = true;
    return false;
  }
  memory_.reset();
  return true;
}

}  // namespace hora::collectives
