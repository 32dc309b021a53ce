// SPDX-License-Identifier: Apache-2.0
// hora.h: collectives as a part of programs that XLA compiles. XLA calls a handler by its typed
// foreign function interface, which is plain C. What is needed of it is declared here, so that
// libhora is built without XLA: each struct begins with its size, and grows at its end only.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/c_interface/calls.h"
#include "collectives/types.h"

using namespace hora::collectives;

namespace {

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
constexpr int kMetadataExtension = 1;

struct ApiVersion {
  std::size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

struct Metadata {
  std::size_t struct_size;
  ApiVersion api_version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorArguments {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;  // copied
  int code;             // as of absl::Status
};
constexpr int kInternalError = 13;

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  ApiVersion api_version;
  const void* internal;
  void* (*create_error)(ErrorArguments*);
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  std::int64_t rank;
  const std::int64_t* dimensions;
};

struct Operands {  // arguments, and results
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  const int* types;
  Buffer* const* buffers;
};

struct Text {
  const char* data;
  std::size_t size;
};

struct Array {
  int dtype;
  std::size_t size;
  const void* data;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  const int* types;
  const Text* const* names;
  const void* const* values;
};

struct CallFrame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  const void* context;
  int stage;
  Operands arguments;
  Operands results;
  Attributes attributes;
};
constexpr int kExecute = 3;

constexpr int kTokenType = 17;  // of values that only order calls

// The operations of a call, as hora/xla.py encodes them.
struct Call {
  std::vector<hora_request> requests;
  std::vector<std::string> names;
  std::vector<std::int64_t> groups;   // how many requests are submitted together
  std::vector<void*> results;         // where each result goes
  std::vector<std::int64_t> extents;  // how many elements it has
};

template <typename Value>
const Value& attribute(const Attributes& attributes, std::string_view name) {
  for (std::int64_t i = 0; i < attributes.count; ++i) {
    const Text& each = *attributes.names[i];
    if (std::string_view(each.data, each.size) == name) {
      return *static_cast<const Value*>(attributes.values[i]);
    }
  }
  throw std::invalid_argument("the call lacks the attribute " + std::string(name));
}

std::vector<const Buffer*> without_tokens(const Operands& operands) {
  std::vector<const Buffer*> buffers(operands.buffers, operands.buffers + operands.count);
  std::erase_if(buffers, [](const Buffer* each) { return each->dtype == kTokenType; });
  return buffers;
}

char nothing = 0;

std::int64_t product(const std::int64_t* extents, std::int64_t count) {
  return std::accumulate(extents, extents + count, std::int64_t{1}, std::multiplies<>());
}

// For each tensor: how many requests its group has if it begins one, else 0; operation, dtype,
// reduction, root, set, the factors as bits, whether the library allocates the result, the number
// of its elements, the length of the name, the number of extents of the input, and these.
Call decoded(const CallFrame& frame) {
  const auto& numbers = attribute<Array>(frame.attributes, "numbers");
  const char* name = attribute<Text>(frame.attributes, "names").data;
  const auto inputs = without_tokens(frame.arguments);
  const auto outputs = without_tokens(frame.results);
  const auto* next = static_cast<const std::int64_t*>(numbers.data);
  const auto* const end = next + numbers.size;
  Call call;
  while (next < end) {
    const std::size_t index = call.requests.size();
    hora_request& request = call.requests.emplace_back();
    request.struct_size = sizeof request;
    if (*next > 0) call.groups.push_back(*next);
    request.operation = static_cast<std::int32_t>(next[1]);
    request.input.dtype = static_cast<std::int32_t>(next[2]);
    request.reduce_op = static_cast<std::int32_t>(next[3]);
    request.root_rank = static_cast<std::int32_t>(next[4]);
    request.process_set = static_cast<std::int32_t>(next[5]);
    request.prescale = std::bit_cast<double>(next[6]);
    request.postscale = std::bit_cast<double>(next[7]);
    call.extents.push_back(next[9]);
    call.names.emplace_back(name, static_cast<std::size_t>(next[10]));
    name += next[10];
    request.input.ndim = static_cast<std::int32_t>(next[11]);
    request.input.shape = next + 12;
    request.input.data = inputs.at(index)->data;
    request.input.device = HORA_CPU_DEVICE;
    // Of an array without elements it may be null, which would say that the library allocates.
    void* const result = outputs.at(index)->data;
    call.results.push_back(result != nullptr ? result : &nothing);
    request.output = request.input;
    request.output.data = next[8] != 0 ? nullptr : call.results.back();
    next += 12 + request.input.ndim;
  }
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    call.requests[i].name = call.names[i].c_str();
  }
  return call;
}

// As the classes of hora/exceptions.py are called.
std::string described(hora_status status, const std::string& text) {
  switch (status) {
    case HORA_INVALID_ARGUMENT:
      return "ValueError: " + text;
    case HORA_NOT_INITIALIZED:
      return "NotInitializedError: " + text;
    case HORA_MISMATCH:
      return "TensorMismatchError: " + text;
    case HORA_TIMED_OUT:
      return "CollectiveTimeoutError: " + text;
    case HORA_UNSUPPORTED:
      return "UnsupportedError: " + text;
    default:
      return "HorovodInternalError: " + text;
  }
}

// Copies what the library allocated into the buffer of the program, whose size is compiled in.
std::string fetched(const Call& call, std::size_t index, hora_handle handle) {
  hora_tensor result{};
  const hora_status status = hora_result(handle, &result);
  if (status != HORA_OK) return described(status, hora_last_error());
  const std::int64_t elements = product(result.shape, result.ndim);
  if (elements != call.extents[index]) {
    return "ValueError: inside jit all ranks need arrays of one shape: the result of " +
           call.names[index] + " has " + std::to_string(elements) + " elements, " +
           std::to_string(call.extents[index]) + " were compiled";
  }
  const std::size_t size = dtype_bytes(static_cast<hora_dtype>(result.dtype));
  if (elements > 0) std::memcpy(call.results[index], result.data, elements * size);
  return "";
}

std::string finished(const Call& call, std::size_t index, hora_handle handle) {
  const hora_status status = hora_wait(handle, -1);
  std::string failure;
  if (status != HORA_OK) {
    failure = described(status, hora_error(handle));
  } else if (call.requests[index].output.data == nullptr) {
    failure = fetched(call, index, handle);
  }
  hora_release(handle);
  return failure;
}

// All groups are in flight at once. Waits for all of them, also where one fails. The answer is the
// text of the first failure.
std::string run(const Call& call) {
  if (call.requests.size() == 1 && call.requests[0].output.data != nullptr) {
    const hora_status status = hora_run(call.requests.data(), -1, nullptr);
    return status == HORA_OK ? "" : described(status, hora_last_error());
  }
  std::vector<hora_handle> handles(call.requests.size(), 0);
  std::string failure;
  std::size_t begun = 0;
  for (const std::int64_t count : call.groups) {
    const hora_status status =
        hora_submit(&call.requests[begun], static_cast<std::int32_t>(count), &handles[begun]);
    if (status != HORA_OK) {
      failure = described(status, hora_last_error());
      break;
    }
    begun += count;
  }
  for (std::size_t index = 0; index < begun; ++index) {
    std::string text = finished(call, index, handles[index]);
    if (failure.empty()) failure = std::move(text);
  }
  return failure;
}

}  // namespace

extern "C" void* hora_xla_call(void* call_frame) {
  auto& frame = *static_cast<CallFrame*>(call_frame);
  // XLA asks first which version of the interface this knows. What is declared above is the same in
  // all that have this major version, so it is XLA's own; with another one XLA refuses.
  if (frame.extensions != nullptr && frame.extensions->type == kMetadataExtension) {
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(frame.extensions)->metadata;
    metadata.api_version.major = 0;
    metadata.api_version.minor = frame.api == nullptr ? 1 : frame.api->api_version.minor;
    return nullptr;
  }
  std::string failure;
  try {
    failure = run(decoded(frame));
  } catch (const std::exception& error) {
    failure = described(HORA_INTERNAL, error.what());
  }
  if (failure.empty()) return nullptr;
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, failure.c_str(), kInternalError};
  return frame.api->create_error(&arguments);
}
