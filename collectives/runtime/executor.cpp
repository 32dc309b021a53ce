// SPDX-License-Identifier: Apache-2.0
// Turns the responses of one fused step into a Step for a backend, and follows that step to its
// end. The layout (pieces, counts, result sizes) depends only on the responses and on the own
// operations, so all ranks lay out matching steps.
#include "collectives/runtime/executor.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "collectives/algorithms/adasum.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"
#include "collectives/runtime/host_stage.h"

namespace hora::collectives {

namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), INT64_C(0));
}

std::vector<std::int64_t> with_rows(const std::vector<std::int64_t>& shape, std::int64_t rows) {
  std::vector<std::int64_t> result = shape;
  result[0] = rows;
  return result;
}

// Memory for `bytes` on the device of the tensor. False: no memory is left, or nothing knows the
// device.
bool allocate(ResultBuffer& buffer, std::int32_t device, std::int64_t bytes, const void* content) {
  if (device == HORA_CPU_DEVICE) return buffer.allocate(bytes);
  const BackendDescriptor* const owner = device_memory();
  return owner != nullptr && buffer.allocate_on(*owner, device, bytes, content);
}

// The tensors of a prepared set lie in its order on all ranks, also on those that have joined.
bool add_set(PreparedStep& prepared, const Response& response, const Operation* operation) {
  const Request& agreed = response.agreed;
  const std::size_t width = dtype_bytes(agreed.dtype);
  prepared.bytes += element_count(agreed.shape) * static_cast<std::int64_t>(width);
  if (operation != nullptr) {
    prepared.pieces.insert(prepared.pieces.end(), operation->pieces.begin(),
                           operation->pieces.end());
    prepared.stands_in.resize(prepared.pieces.size(), false);
    return true;
  }
  for (const std::int64_t each : agreed.members->counts) {
    ResultBuffer stand_in;
    if (!stand_in.allocate(each * static_cast<std::int64_t>(width))) return false;
    fill_identity(stand_in.data(), each, agreed.dtype, agreed.reduce_op);
    prepared.pieces.push_back({stand_in.data(), stand_in.data(), each, nullptr});
    prepared.stands_in.push_back(true);
    prepared.stand_ins.push_back(std::move(stand_in));
  }
  return true;
}

bool add_elementwise(PreparedStep& prepared, const Response& response, const Operation* operation) {
  if (response.agreed.members) return add_set(prepared, response, operation);
  Piece piece;
  // Without an operation this rank has joined: the response says how large its share would be.
  piece.count = operation != nullptr ? operation->count : element_count(response.agreed.shape);
  const auto bytes = piece.count * static_cast<std::int64_t>(dtype_bytes(response.agreed.dtype));
  prepared.bytes += bytes;
  if (operation != nullptr) {
    piece.input = operation->input;
    piece.output = operation->output;
    piece.stream = operation->stream;
  } else {
    ResultBuffer stand_in;
    if (!stand_in.allocate(bytes)) return false;
    // The neutral element of the reduction, so that a joined rank does not change the result.
    fill_identity(stand_in.data(), piece.count, response.agreed.dtype, response.agreed.reduce_op);
    piece.input = stand_in.data();
    piece.output = stand_in.data();
    // The step refers to this memory until it ends.
    prepared.stand_ins.push_back(std::move(stand_in));
  }
  prepared.pieces.push_back(piece);
  prepared.stands_in.push_back(operation == nullptr);
  return true;
}

// The backend wants all tensors of the step where those of the other ranks are.
bool move_stand_ins_to_device(PreparedStep& prepared) {
  auto stand_in = prepared.stand_ins.begin();
  for (std::size_t i = 0; i < prepared.pieces.size(); ++i) {
    if (!prepared.stands_in[i]) continue;
    Piece& piece = prepared.pieces[i];
    const auto dtype = static_cast<hora_dtype>(prepared.step.dtype);
    const ResultBuffer content = std::move(*stand_in);
    const auto bytes = piece.count * static_cast<std::int64_t>(dtype_bytes(dtype));
    if (!allocate(*stand_in, kOwnDevice, bytes, content.data())) return false;
    piece.input = stand_in->data();
    piece.output = stand_in->data();
    ++stand_in;
  }
  return true;
}

// For operations whose result the library allocates: `rows` rows on this rank.
bool add_with_result(PreparedStep& prepared, Operation& operation, std::int64_t rows) {
  const std::int64_t row = row_elements(operation.request.shape);
  const auto width = static_cast<std::int64_t>(dtype_bytes(operation.request.dtype));
  std::int64_t bytes = 0;
  // Row counts come from other ranks, and each alone passed its own check: only the sum can
  // overflow.
  if (__builtin_mul_overflow(rows * row, width, &bytes) ||
      !allocate(operation.result, operation.request.device, bytes, nullptr)) {
    return false;
  }
  operation.result_shape = with_rows(operation.request.shape, rows);
  prepared.pieces.push_back(
      {operation.input, operation.result.data(), operation.count, operation.stream});
  prepared.stands_in.push_back(false);
  return true;
}

void scale_counts(std::vector<std::int64_t>& rows, std::int64_t row) {
  for (std::int64_t& each : rows) each *= row;
}

bool prepare_gather(PreparedStep& prepared, const Response& response, Operation& operation) {
  // The response has rows; backends count elements.
  prepared.receive_counts = response.numbers;
  const std::int64_t rows = sum(prepared.receive_counts);
  const std::int64_t row = row_elements(operation.request.shape);
  scale_counts(prepared.receive_counts, row);
  prepared.bytes = rows * row * static_cast<std::int64_t>(dtype_bytes(operation.request.dtype));
  return add_with_result(prepared, operation, rows);
}

bool prepare_alltoall(PreparedStep& prepared, const Response& response, Operation& operation) {
  operation.received_splits = response.numbers;
  prepared.send_counts = operation.request.splits;
  prepared.receive_counts = response.numbers;
  const std::int64_t rows = sum(prepared.receive_counts);
  const std::int64_t row = row_elements(operation.request.shape);
  scale_counts(prepared.send_counts, row);
  scale_counts(prepared.receive_counts, row);
  return add_with_result(prepared, operation, rows);
}

bool prepare_scatter(PreparedStep& prepared, const ProcessSet& set, Operation& operation) {
  const std::vector<std::int64_t>& shape = operation.request.shape;
  prepared.receive_counts = even_rows(shape[0], set.size());
  const std::int64_t mine = prepared.receive_counts[static_cast<std::size_t>(set.index)];
  scale_counts(prepared.receive_counts, row_elements(shape));
  prepared.bytes =
      operation.count * static_cast<std::int64_t>(dtype_bytes(operation.request.dtype));
  return add_with_result(prepared, operation, mine);
}

bool prepare(PreparedStep& prepared, const ProcessSet& set,
             const std::vector<const Response*>& responses,
             const std::vector<Operation*>& operations) {
  const Request& agreed = responses.front()->agreed;
  Step& step = prepared.step;
  step.operation = static_cast<std::int32_t>(agreed.action);
  step.dtype = agreed.dtype;
  // Backends know no average: they add, and divide at the end in one place (kernels).
  step.reduce_op = agreed.reduce_op == HORA_AVERAGE ? HORA_SUM : agreed.reduce_op;
  step.divisor = agreed.reduce_op == HORA_AVERAGE ? set.size() : 1;
  prepared.by_adasum = agreed.reduce_op == HORA_ADASUM && set.size() > 1;
  step.prescale = agreed.prescale;
  step.postscale = agreed.postscale;
  bool good = true;
  switch (agreed.action) {
    case Action::kAllreduce:
    case Action::kBroadcast:
      for (std::size_t i = 0; i < responses.size(); ++i) {
        good = good && add_elementwise(prepared, *responses[i], operations[i]);
      }
      break;
    case Action::kAllgather:
      good = prepare_gather(prepared, *responses[0], *operations[0]);
      break;
    case Action::kAlltoall:
      good = prepare_alltoall(prepared, *responses[0], *operations[0]);
      break;
    case Action::kReducescatter:
      good = prepare_scatter(prepared, set, *operations[0]);
      break;
    default:
      break;
  }
  if (agreed.action == Action::kBroadcast) {
    // The request names the root by its rank in the world, backends by its index in the set.
    const auto root = std::find(set.ranks.begin(), set.ranks.end(), agreed.root);
    step.root = static_cast<std::int32_t>(root - set.ranks.begin());
  }
  // Ranks may hold the same tensor on devices with different numbers. A joined rank has no tensor
  // at all and uses the device that it has used before.
  if (agreed.device != HORA_CPU_DEVICE) step.device = kOwnDevice;
  const auto own = std::find_if(operations.begin(), operations.end(),
                                [](const Operation* each) { return each != nullptr; });
  if (own != operations.end()) step.device = (*own)->request.device;
  step.pieces = prepared.pieces.data();
  step.piece_count = static_cast<std::int32_t>(prepared.pieces.size());
  step.send_counts = prepared.send_counts.data();
  step.receive_counts = prepared.receive_counts.data();
  return good;
}

struct Choice {
  std::string backend;
  bool by_host = false;  // the tensors are on a GPU, and the backend is one of host memory
};

// Nothing if no backend fits.
std::optional<Choice> choose_backend(const ProcessSet& set, const PreparedStep& prepared,
                                     const Parameters& parameters, std::string& why_not) {
  SelectionQuery query;
  // Adasum is composed of alltoalls and allgathers.
  query.operation =
      prepared.by_adasum ? HORA_ALLTOALL : static_cast<hora_operation>(prepared.step.operation);
  const Step& step = prepared.step;
  query.dtype = static_cast<hora_dtype>(step.dtype);
  query.bytes = prepared.bytes;
  const bool floats = is_floating(query.dtype);
  const bool wide = !floats && step.divisor != 1;
  if (wide) {
    query.bytes = query.bytes / static_cast<std::int64_t>(dtype_bytes(query.dtype)) *
                  WideAverage::elements_per_number(query.dtype);
    query.dtype = WideAverage::wide_dtype(query.dtype);
    query.bytes *= static_cast<std::int64_t>(dtype_bytes(query.dtype));
  }
  const bool on_gpu = step.device != HORA_CPU_DEVICE;
  // Adasum itself computes in host memory, and so do averages of integers, and minima and maxima
  // of floats: NCCL's drop a NaN.
  const bool selects = step.reduce_op == HORA_MIN || step.reduce_op == HORA_MAX;
  query.gpu = on_gpu && !prepared.by_adasum && !wide && !(floats && selects);
  query.one_host = set.one_host;
  query.set_size = set.size();
  // Tuning switches only the hierarchical allreduce on and off.
  query.hierarchical = query.operation != HORA_ALLREDUCE || parameters.hierarchical_allreduce;
  auto id = select_backend(set.table, query);
  if (!id && query.gpu) {
    query.gpu = false;
    id = select_backend(set.table, query);
  }
  if (id) return Choice{std::move(*id), on_gpu && !query.gpu};
  why_not = "no backend in use can run " + std::string(operation_name(query.operation)) + " of " +
            std::string(dtype_name(query.dtype)) + (on_gpu ? " on a GPU" : " in host memory") +
            "; hora_describe() and horarun --check-build --verbose list what is missing";
  return std::nullopt;
}

// For a warning; the same for all operations if no backend takes any on a GPU.
std::string describe_detour(const ProcessSet& set, const Step& step) {
  const bool none = std::none_of(set.table.begin(), set.table.end(),
                                 [](const SelectionRow& row) { return row.capability.gpu != 0; });
  std::string kind(operation_name(static_cast<hora_operation>(step.operation)));
  if (step.divisor != 1) kind += " (average)";
  if (step.reduce_op == HORA_MIN || step.reduce_op == HORA_MAX) {
    kind += " (" + std::string(reduce_op_name(static_cast<hora_reduce_op>(step.reduce_op))) + ")";
  }
  const std::string what = none ? "every operation on tensors in GPU memory"
                                : kind + " of " +
                                      std::string(dtype_name(static_cast<hora_dtype>(step.dtype))) +
                                      " tensors in GPU memory";
  return what + " goes through host memory, which takes longer: no backend in use does it on a GPU";
}

}  // namespace

std::string activity_name(std::string_view backend, hora_operation operation, bool by_adasum) {
  std::string name;
  for (const char c : backend) {
    name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  switch (operation) {
    case HORA_ALLREDUCE:
      return name + (by_adasum ? "_ADASUM_ALLREDUCE" : "_ALLREDUCE");
    case HORA_ALLGATHER:
      return name + "_ALLGATHER";
    case HORA_BROADCAST:
      return name + "_BCAST";
    case HORA_ALLTOALL:
      return name + "_ALLTOALL";
    case HORA_REDUCESCATTER:
      return name + "_REDUCESCATTER";
    default:
      return name + "_BARRIER";
  }
}

RunningStep::RunningStep(ProcessSet& set, const std::vector<const Response*>& responses,
                         const std::vector<Operation*>& operations, const Parameters& parameters)
    : agreed_(&responses.front()->agreed), set_(&set) {
  // An allocation failure must not leave this constructor: the others would wait for this rank. It
  // becomes a failed step, which all ranks learn of.
  bool enough_memory = false;
  try {
    enough_memory = prepare(prepared_, set, responses, operations);
  } catch (const std::bad_alloc&) {  // not even for the lists
  }
  if (!enough_memory) {
    own_failure_ = true;
    end(State::kBroken, "not enough memory for the result of " + what());
    return;
  }
  std::string why_not;
  auto chosen = choose_backend(set, prepared_, parameters, why_not);
  if (!chosen) {
    end(State::kUnsupported, std::move(why_not));
    return;
  }
  backend_id_ = std::move(chosen->backend);
  backend_ = set.find_backend(backend_id_)->instance.get();
  if (!settle_memory(chosen->by_host)) return;
  settle_average();
  prepared_.step.small_bytes = parameters.shm_small_bytes;
  prepared_.step.part_bytes = parameters.shm_part_bytes;
}

// Puts the tensors where the backend finds them, or lets begin() do so. False: the step has ended.
bool RunningStep::settle_memory(bool by_host) {
  Step& step = prepared_.step;
  if (step.device == HORA_CPU_DEVICE) return true;
  if (!by_host) {
    if (move_stand_ins_to_device(prepared_)) return true;
    own_failure_ = true;
    end(State::kBroken, "not enough memory for the result of " + what());
    return false;
  }
  const std::vector<bool>& stands_in = prepared_.stands_in;
  if (std::all_of(stands_in.begin(), stands_in.end(), [](bool each) { return each; })) {
    step.device = HORA_CPU_DEVICE;
    return true;
  }
  const BackendDescriptor* const owner = device_memory();
  if (owner != nullptr) {
    if (!prepared_.by_adasum) detour_ = describe_detour(*set_, step);
    stage_.emplace(*owner, set_->index, set_->size());
    return true;
  }
  own_failure_ = true;
  end(State::kBroken, what() + ": no backend here copies tensors from a GPU");
  return false;
}

void RunningStep::settle_average() {
  Step& step = prepared_.step;
  const bool wide = set_->find_backend(backend_id_)->has(kWideAverages);
  if (!WideAverage::is_needed(step, wide)) return;
  if (step.device == HORA_CPU_DEVICE || stage_) {
    average_.emplace(set_->kept_inputs, set_->index, set_->size());
    return;
  }
  // On a GPU the sum stays narrow. Divided by a power of two, which only takes digits of the
  // smallest numbers, it cannot overflow.
  double power = 1;
  while (power < static_cast<double>(step.divisor)) power *= 2;
  step.prescale /= power;
  step.postscale *= power;
}

// Adasum uses its backend for several operations in a row, so nothing may run at the same time.
int RunningStep::most_under_way() const {
  return backend_ == nullptr || prepared_.by_adasum ? 1 : backend_->most_under_way();
}

RunningStep::State RunningStep::begin(Activities* activities) {
  if (state_ != State::kReady) return state_;
  Step& step = prepared_.step;
  step.activities = activities;
  if (activities != nullptr) {
    activities->begin(activity_name(backend_id_, static_cast<hora_operation>(step.operation),
                                    step.reduce_op == HORA_ADASUM)
                          .c_str());
  }
  ErrorText error;
  if (stage_ && !stage_->bring(step, prepared_.pieces, prepared_.stands_in, error)) {
    return follow(Progress::kFailed, error);
  }
  return follow(execute(error), error);
}

// May run out of memory for its copies of the tensors.
Progress RunningStep::execute(ErrorText& error) {
  Step& step = prepared_.step;
  try {
    if (prepared_.by_adasum) {
      const bool good = adasum(*backend_, set_->index, set_->size(), step, error);
      return good ? Progress::kDone : Progress::kFailed;
    }
    // Backends of host memory are done when they return.
    if (average_) average_->prepare(step);
    const Progress progress = backend_->execute(step, &ticket_, error);
    if (progress != Progress::kDone || !average_ || !average_->runs_again(step)) return progress;
    if (backend_->execute(step, &ticket_, error) != Progress::kDone) return Progress::kFailed;
    average_->runs_again(step);
    return Progress::kDone;
  } catch (const std::exception& failure) {
    report_to(failure, error);
    return Progress::kFailed;
  }
}

RunningStep::State RunningStep::look() {
  if (state_ != State::kUnderWay) return state_;
  ErrorText error;
  const Progress progress = backend_->poll(ticket_, error);
  return follow(progress, error);
}

RunningStep::State RunningStep::follow(Progress progress, ErrorText& error) {
  if (progress == Progress::kDone && stage_ && !stage_->take_back(prepared_.step, error)) {
    progress = Progress::kFailed;
  }
  // From now on the response may be gone (the cache reuses it), so the title is kept as text.
  if (progress == Progress::kPending) {
    if (state_ == State::kReady) what_ = what();
    agreed_ = nullptr;
    return state_ = State::kUnderWay;
  }
  if (prepared_.step.activities != nullptr) prepared_.step.activities->end();
  if (progress == Progress::kDone) return state_ = State::kDone;
  // Distinguishes a failure that began here from one that another rank caused, for the search for
  // the root cause.
  own_failure_ = error.own;
  unreached_ = error.unreached;
  return end(State::kBroken, what() + ": " + error.text);
}

RunningStep::State RunningStep::end(State state, std::string text) {
  text_ = std::move(text);
  return state_ = state;
}

std::string RunningStep::what() const {
  return agreed_ == nullptr ? what_ : title_of(agreed_->action, agreed_->name);
}

}  // namespace hora::collectives
