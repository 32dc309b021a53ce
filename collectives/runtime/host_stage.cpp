// SPDX-License-Identifier: Apache-2.0
// Copies in, the operation of a backend for host memory, copies out: slow, and right. Inputs are
// copied when their producer is done, so the step sees what the framework has written.
#include "collectives/runtime/host_stage.h"

#include <numeric>

#include "collectives/backends/activity.h"
#include "collectives/types.h"

namespace hora::collectives {

namespace {

// An allreduce or a broadcast: what goes in is as large as what comes out.
bool is_elementwise(const Step& step) {
  return step.operation == HORA_ALLREDUCE || step.operation == HORA_BROADCAST;
}

}  // namespace

bool HostStage::bring(Step& step, std::vector<Piece>& pieces, const std::vector<bool>& is_here,
                      ErrorText& error) {
  const Activity activity(step, "MEMCPY_IN_HOST_BUFFER");
  device_ = step.device;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!is_here[i] && !bring_one(step, pieces[i], error)) {
      // Neither a full memory here nor a failing copy is another rank's doing.
      error.own = true;
      return false;
    }
  }
  step.device = HORA_CPU_DEVICE;
  step.pieces = pieces.data();
  return true;
}

bool HostStage::bring_one(const Step& step, Piece& piece, ErrorText& error) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
  std::int64_t received = piece.count;
  // Sums of counts that have passed a check when the result was allocated.
  if (step.operation == HORA_REDUCESCATTER) received = step.receive_counts[set_index_];
  if (step.operation == HORA_ALLGATHER || step.operation == HORA_ALLTOALL) {
    received = std::accumulate(step.receive_counts, step.receive_counts + set_size_, INT64_C(0));
  }
  Copied copied;
  copied.output = piece.output;
  copied.output_bytes = received * width;
  const bool in_place = is_elementwise(step);
  if (!copied.input_copy.allocate(piece.count * width) ||
      (!in_place && !copied.output_copy.allocate(copied.output_bytes))) {
    return error.set("not enough host memory for a copy of the tensor");
  }
  // What is only written, too, has to wait for the work on it that the framework has queued.
  const bool is_read = step.operation != HORA_BROADCAST || step.root == set_index_;
  const auto read = static_cast<std::size_t>(is_read ? piece.count * width : 0);
  if (!copier_->to_host(device_, piece.stream, copied.input_copy.data(), piece.input, read,
                        error)) {
    return false;
  }
  piece.input = copied.input_copy.data();
  piece.output = in_place ? copied.input_copy.data() : copied.output_copy.data();
  piece.stream = nullptr;
  copied_.push_back(std::move(copied));
  return true;
}

// Stand-ins of a rank that has joined were not copied in, and nothing goes back.
bool HostStage::take_back(const Step& step, ErrorText& error) {
  const Activity activity(step, "MEMCPY_OUT_HOST_BUFFER");
  for (const Copied& each : copied_) {
    const ResultBuffer& result =
        each.output_copy.data() == nullptr ? each.input_copy : each.output_copy;
    if (!copier_->to_device(device_, each.output, result.data(),
                            static_cast<std::size_t>(each.output_bytes), error)) {
      error.own = true;
      return false;
    }
  }
  copied_.clear();
  return true;
}

}  // namespace hora::collectives
