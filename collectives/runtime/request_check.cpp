// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/request_check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

// The JSON of hora_describe(). Written by hand: the library carries no JSON library, and the
// document is flat.

namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string boolean(bool value) { return value ? "true" : "false"; }

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& each : items) text += (text.size() == 1 ? "" : ",") + json_string(each);
  return text + "]";
}

// One backend: built, loadable on this host, and whether this job uses it.
std::string describe_backend(const BackendRow& row, const Communicator* communicator) {
  const bool built = row.why_not_built == nullptr;
  std::string version;
  std::string why;
  bool usable = false;
  ErrorText no_use;
  std::vector<std::string> notes;
  // Inside a job, an unused module is not loaded just to describe it. Without a job this is
  // --check-build, which wants to know.
  if (communicator != nullptr && !is_called_for(row, no_use)) {
    why = no_use.text;
  } else if (auto descriptor = load_backend(row)) {
    version = (*descriptor)->version();
    ProbeContext context;
    if (communicator != nullptr) {
      context.world_size = communicator->world().settings.size;
      context.local_size = communicator->world().settings.local_size;
    }
    ErrorText reason;
    usable = (*descriptor)->probe(context, reason);
    why = reason.text;
  } else {
    why = descriptor.error().message;
  }
  bool enabled = false;
  if (communicator != nullptr) {
    const auto list = communicator->engine().backends().enabled();
    enabled = std::find(list.begin(), list.end(), row.id) != list.end();
    for (const auto& [id, reason] : communicator->engine().backends().left_out()) {
      if (id == row.id) why = reason;
    }
    for (const auto& [id, note] : communicator->engine().backends().notes()) {
      if (id == row.id) notes.push_back(note);
    }
  }
  return "{\"id\":" + json_string(row.id) + ",\"built\":" + boolean(built) +
         ",\"usable\":" + boolean(usable) + ",\"enabled\":" + boolean(enabled) +
         ",\"version\":" + json_string(version) + ",\"why_not\":" + json_string(why) +
         ",\"notes\":" + list(notes) + "}";
}

// Whether small operations can bypass rank 0, or why not; on several hosts, the leader of each.
std::string describe_lane(const Engine& engine, int rank) {
  const FastPath* const fast_path = engine.fast_path();
  std::string text = ",\"fast_path\":" + boolean(fast_path != nullptr) +
                     ",\"why_no_fast_path\":" + json_string(engine.met().why_no_fast_path);
  const LeaderPlan* const plan = engine.leaders();
  if (plan == nullptr) return text;
  text += ",\"leads_its_host\":" + boolean(plan->leader_of(plan->host) == rank) + ",\"leaders\":[";
  for (int host = 0; host < plan->hosts(); ++host) {
    text += (host == 0 ? "" : ",") + std::to_string(plan->leader_of(host));
  }
  return text + "],\"round_trip_us\":" + std::to_string(engine.met().round_trip.count());
}

}  // namespace

std::string describe(const Communicator* communicator) {
  std::string text = "{\"version\":" + json_string(HORA_VERSION) +
                     ",\"abi\":" + std::to_string(HORA_ABI_VERSION) +
                     ",\"library\":" + json_string(library_folder()) +
                     ",\"simd\":" + json_string(kernels().instruction_set) + ",\"backends\":[";
  bool first = true;
  for (const BackendRow& row : backend_rows()) {
    if (!first) text += ',';
    first = false;
    text += describe_backend(row, communicator);
  }
  text += "]";
  if (communicator != nullptr) {
    const Settings& settings = communicator->world().settings;
    text += ",\"rank\":" + std::to_string(settings.rank) +
            ",\"size\":" + std::to_string(settings.size) +
            ",\"address\":" + json_string(communicator->world().address) +
            ",\"fusion_threshold_bytes\":" +
            std::to_string(settings.parameters.fusion_threshold_bytes) +
            ",\"fast_path_operations\":" + std::to_string(communicator->engine().fast_path_runs()) +
            describe_lane(communicator->engine(), settings.rank) + ",\"selection\":" +
            json_string(format_table(communicator->engine().backends().table()));
  }
  return text + "}";
}

// Everything about a request that one rank can check alone is checked here, on the caller's thread,
// before the request is queued: a mistake is an error of the call, and no other rank sees it.
// Differences that only the ranks together can find (different shapes, say) are a mismatch, which
// rank 0 reports.

namespace {

class Check {
 public:
  Check(const hora_request& request, const std::vector<std::int32_t>& ranks, std::int32_t rank)
      : given_(request), ranks_(ranks), rank_(rank), operation_(make_operation()) {}

  Result<OperationPtr> run() {
    // The first version of hora_request ended before `stream`; anything shorter is uninitialised.
    if (given_.struct_size < offsetof(hora_request, stream)) {
      return wrong("hora_request.struct_size is " + std::to_string(given_.struct_size) +
                   ", too small: set it to sizeof(hora_request)");
    }
    if (!is_operation(given_.operation)) {
      return wrong("unknown operation " + std::to_string(given_.operation));
    }
    request().action = static_cast<Action>(given_.operation);
    request().process_set = given_.process_set;
    request().priority = given_.priority;
    operation_->stream = given_.struct_size >= sizeof(hora_request) ? given_.stream : nullptr;
    // They have no tensor, and get their name from the communicator.
    if (given_.operation == HORA_JOIN || given_.operation == HORA_BARRIER) {
      return std::move(operation_);
    }
    if (given_.name == nullptr || *given_.name == '\0') {
      return wrong(std::string(operation_name(operation())) + " needs a name");
    }
    request().name = given_.name;
    HORA_TRY(take_tensor());
    HORA_TRY(take_memory());
    switch (operation()) {
      case HORA_ALLREDUCE:
      case HORA_REDUCESCATTER:
        HORA_TRY(take_reduction());
        break;
      case HORA_BROADCAST:
        HORA_TRY(take_root());
        break;
      case HORA_ALLTOALL:
        HORA_TRY(take_splits());
        break;
      default:
        break;
    }
    return std::move(operation_);
  }

 private:
  Request& request() { return operation_->request; }
  hora_operation operation() const { return static_cast<hora_operation>(given_.operation); }

  Error wrong(const std::string& text) const {
    std::string prefix;
    if (is_operation(given_.operation) && given_.name != nullptr) {
      prefix = std::string(operation_name(operation())) + " '" + given_.name + "': ";
    }
    return make_error(ErrorCode::kUsage, prefix + text);
  }

  bool result_is_ours() const {
    return given_.operation == HORA_ALLGATHER || given_.operation == HORA_ALLTOALL ||
           given_.operation == HORA_REDUCESCATTER;
  }

  Status take_tensor() {
    const hora_tensor& input = given_.input;
    if (!is_dtype(input.dtype)) return wrong("unknown dtype " + std::to_string(input.dtype));
    // 64 bounds what a corrupt struct can make us copy; no framework has more.
    if (input.ndim < 0 || input.ndim > 64 || (input.ndim > 0 && input.shape == nullptr)) {
      return wrong("expected 0 to 64 dimensions and a shape, but ndim is " +
                   std::to_string(input.ndim));
    }
    request().dtype = static_cast<hora_dtype>(input.dtype);
    request().device = input.device;
    if (input.ndim > 0) request().shape.assign(input.shape, input.shape + input.ndim);
    operation_->count = element_count(request().shape);
    // Bytes must fit as well as elements: backends compute offsets in bytes.
    std::int64_t bytes = 0;
    if (operation_->count < 0 ||
        __builtin_mul_overflow(operation_->count,
                               static_cast<std::int64_t>(dtype_bytes(request().dtype)), &bytes)) {
      return wrong("the shape " + format_shape(request().shape) + " is impossible");
    }
    if (input.device < HORA_CPU_DEVICE) {
      return wrong("unknown device " + std::to_string(input.device));
    }
    // These operations split or concatenate along the first dimension.
    if (result_is_ours() && input.ndim < 1) {
      return wrong("the tensor needs at least one dimension; a scalar has none");
    }
    return Ok{};
  }

  Status take_memory() {
    operation_->input = given_.input.data;
    operation_->output = given_.output.data;
    if (result_is_ours()) {
      // The library allocates the result, because its size depends on the other ranks.
      if (given_.output.data != nullptr) return wrong("output.data must be NULL");
    } else {
      const hora_tensor& output = given_.output;
      if (output.dtype != given_.input.dtype || output.ndim != given_.input.ndim ||
          (output.ndim > 0 &&
           (output.shape == nullptr ||
            std::memcmp(output.shape, given_.input.shape,
                        static_cast<std::size_t>(output.ndim) * sizeof(std::int64_t)) != 0))) {
        return wrong("the output must have the input's shape and dtype");
      }
      if (output.device != given_.input.device) {
        return wrong("input and output are on different devices");
      }
      if (operation_->count > 0 && operation_->output == nullptr) {
        return wrong("output.data is NULL");
      }
    }
    const bool input_unused = given_.operation == HORA_BROADCAST && given_.root_rank != rank_;
    if (operation_->count > 0 && operation_->input == nullptr && !input_unused) {
      return wrong("input.data is NULL");
    }
    return Ok{};
  }

  Status take_reduction() {
    if (!is_reduce_op(given_.reduce_op)) {
      return wrong("unknown reduction " + std::to_string(given_.reduce_op));
    }
    request().reduce_op = static_cast<hora_reduce_op>(given_.reduce_op);
    request().prescale = given_.prescale;
    request().postscale = given_.postscale;
    if (request().dtype == HORA_BOOL) {
      if (given_.prescale != 1.0 || given_.postscale != 1.0) {
        return wrong("a bool tensor cannot be scaled");
      }
      if (given_.reduce_op == HORA_AVERAGE) {
        return wrong("bool tensors have no average; use sum (or), min or product (and)");
      }
    }
    if (given_.reduce_op == HORA_ADASUM &&
        (given_.operation != HORA_ALLREDUCE || !is_floating(request().dtype))) {
      return wrong("adasum is for an allreduce of floating-point tensors");
    }
    // The algorithm combines pairs, then pairs of pairs.
    if (given_.reduce_op == HORA_ADASUM && (ranks_.size() & (ranks_.size() - 1)) != 0) {
      return wrong("adasum needs a power of two of ranks (1, 2, 4, 8, ...), not " +
                   std::to_string(ranks_.size()));
    }
    return Ok{};
  }

  Status take_root() {
    const std::int32_t root = given_.root_rank;
    if (std::find(ranks_.begin(), ranks_.end(), root) == ranks_.end()) {
      return wrong("the root rank " + std::to_string(root) + " is not in the process set");
    }
    request().root = root;
    return Ok{};
  }

  Status take_splits() {
    const auto size = static_cast<std::int64_t>(ranks_.size());
    const std::int64_t rows = request().shape[0];
    if (given_.splits == nullptr) {
      if (rows % size != 0) {
        return wrong("without splits, the first dimension (" + std::to_string(rows) +
                     ") must be a multiple of the number of ranks (" + std::to_string(size) + ")");
      }
      // Explicit from here on: rank 0 compares splits, never their absence.
      request().splits.assign(ranks_.size(), rows / size);
      return Ok{};
    }
    if (given_.split_count != size) {
      return wrong(std::to_string(given_.split_count) + " splits for " + std::to_string(size) +
                   " ranks");
    }
    std::int64_t total = 0;
    for (std::int32_t i = 0; i < given_.split_count; ++i) {
      if (given_.splits[i] < 0) return wrong("a split is negative");
      // Saturates: an overflow must not wrap to a valid sum.
      if (__builtin_add_overflow(total, given_.splits[i], &total)) total = INT64_MAX;
    }
    // Fewer rows are allowed; the rest is not sent.
    if (total > rows) {
      return wrong("the splits add up to " + std::to_string(total) + " rows, but the tensor has " +
                   std::to_string(rows));
    }
    request().splits.assign(given_.splits, given_.splits + size);
    return Ok{};
  }

  const hora_request& given_;
  const std::vector<std::int32_t>& ranks_;
  const std::int32_t rank_;
  OperationPtr operation_;
};

bool is_tensor_of(const hora_tensor& tensor, const Request& request) {
  const auto rank = request.shape.size();
  return tensor.dtype == request.dtype && tensor.device == request.device &&
         tensor.ndim == static_cast<std::int32_t>(rank) &&
         (rank == 0 || (tensor.shape != nullptr &&
                        std::equal(request.shape.begin(), request.shape.end(), tensor.shape)));
}

bool is_operation_of(const hora_request& given, const Request& request) {
  if (given.operation != static_cast<std::int32_t>(request.action)) return false;
  if (request.action == Action::kBroadcast) return given.root_rank == request.root;
  // The result of others is the operation's own, and goes with it.
  return request.action == Action::kAllreduce && given.reduce_op == request.reduce_op &&
         given.prescale == request.prescale && given.postscale == request.postscale;
}

}  // namespace

bool repeats(const hora_request& given, const Operation& before) {
  const Request& request = before.request;
  // Another set may have been removed in the meantime; a caller of another version has other
  // fields.
  if (given.process_set != HORA_GLOBAL_PROCESS_SET || request.process_set != given.process_set ||
      given.struct_size != sizeof(hora_request) || given.priority != request.priority ||
      !is_operation_of(given, request) || given.name == nullptr || request.name != given.name) {
    return false;
  }
  const hora_tensor& input = given.input;
  const hora_tensor& output = given.output;
  const bool same_shape = output.shape == input.shape && output.ndim == input.ndim &&
                          output.dtype == input.dtype && output.device == input.device;
  return is_tensor_of(input, request) && (same_shape || is_tensor_of(output, request)) &&
         (before.count == 0 || (output.data != nullptr && input.data != nullptr));
}

Result<OperationPtr> check_request(const hora_request& request,
                                   const std::vector<std::int32_t>& set_ranks, std::int32_t rank) {
  return Check(request, set_ranks, rank).run();
}

}  // namespace hora::collectives
