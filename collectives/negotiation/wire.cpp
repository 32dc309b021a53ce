// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/wire.h"

#include <algorithm>

namespace hora::collectives {

// texts: how many, then items until that many are there. An item is 2 * n + 1 for n more copies of
// the last text, or 2 * (length of the start that it shares with the last text), the length of the
// end that it shares with it, and what is between them.

void WireWriter::texts(const std::vector<std::string>& values) {
  varint(values.size());
  std::string_view last;
  for (std::size_t i = 0; i < values.size();) {
    const std::string_view value = values[i];
    std::size_t end = i;
    while (end < values.size() && values[end] == last) ++end;
    if (end > i) {
      varint(2 * (end - i) + 1);
      i = end;
      continue;
    }
    const std::size_t shorter = std::min(last.size(), value.size());
    std::size_t head = 0;
    while (head < shorter && last[head] == value[head]) ++head;
    std::size_t tail = 0;
    while (tail < shorter - head && last[last.size() - 1 - tail] == value[value.size() - 1 - tail])
      ++tail;
    varint(2 * head);
    varint(tail);
    text(value.substr(head, value.size() - head - tail));
    last = value;
    ++i;
  }
}

std::vector<std::string> WireReader::texts(std::size_t most) {
  std::vector<std::string> values;
  const std::uint64_t count = varint();
  if (count > most) fail();
  std::string last;
  while (ok_ && values.size() < count) {
    const std::uint64_t item = varint();
    if (item % 2 == 1) {
      if (item / 2 == 0 || item / 2 > count - values.size()) fail();
      values.insert(values.end(), ok_ ? item / 2 : 0, last);
      continue;
    }
    const std::uint64_t head = item / 2;
    const std::uint64_t tail = varint();
    if (head > last.size() || tail > last.size() - head) fail();
    if (!ok_) break;
    const std::string middle = text();
    last = last.substr(0, head) + middle + last.substr(last.size() - tail);
    values.push_back(last);
  }
  if (!ok_) values.clear();
  return values;
}

// A request: action (varint), field bits (one byte), process set (varint), dtype and reduction (a
// byte each), name, shape, then the fields that the bits announce. A response: status (one byte),
// an error text unless it is OK, the agreed request, the numbers, the joined ranks. wire.h defines
// the primitives.

namespace {

// Most requests leave most fields at their defaults; one byte says which fields follow.
enum FieldBit : std::uint8_t {
  kHasScale = 1,
  kHasRoot = 2,
  kHasDevice = 4,
  kHasPriority = 8,
  kHasSplits = 16,
  kHasGroup = 32,
  kHasMembers = 64,
};

// The inverse of the conditions in decode_request().
std::uint8_t field_bits(const Request& request) {
  std::uint8_t bits = 0;
  if (request.prescale != 1.0 || request.postscale != 1.0) bits |= kHasScale;
  if (request.root != -1) bits |= kHasRoot;
  if (request.device != HORA_CPU_DEVICE) bits |= kHasDevice;
  if (request.priority != 0) bits |= kHasPriority;
  if (!request.splits.empty()) bits |= kHasSplits;
  if (!request.group.empty()) bits |= kHasGroup;
  if (request.members) bits |= kHasMembers;
  return bits;
}

// The operations of hora.h and those of the runtime are two separate ranges.
bool is_action(std::uint64_t value) {
  return is_operation(static_cast<std::int32_t>(value)) ||
         (value >= static_cast<std::uint64_t>(Action::kAddProcessSet) &&
          value <= static_cast<std::uint64_t>(Action::kProcessSetOf));
}

void encode_members(WireWriter& out, const Members& members) {
  out.integers(members->counts);
  for (const std::string& name : members->names) out.text(name);
}

bool decode_members(WireReader& in, Request& request) {
  Members::List list;
  list.counts = in.integers<std::int64_t>();
  std::int64_t elements = 0;
  for (const std::int64_t count : list.counts) {
    // The counts say where in the memory of this rank each tensor's share goes.
    if (count < 0 || __builtin_add_overflow(elements, count, &elements)) return false;
    list.names.emplace_back(in.text());
    if (!in.ok()) return false;
  }
  if (list.counts.empty() || request.shape != std::vector<std::int64_t>{elements}) return false;
  request.members = Members(std::move(list));
  return true;
}

}  // namespace

std::string_view action_name(Action action) {
  switch (action) {
    case Action::kAddProcessSet:
    case Action::kProcessSetOf:
      return "adding a process set";
    case Action::kRemoveProcessSet:
      return "removing a process set";
    case Action::kShutdown:
      return "shutdown";
    case Action::kTune:
      return "change of parameters";
    default:
      return operation_name(static_cast<hora_operation>(action));
  }
}

// The form in which all messages name an operation.
std::string title_of(Action action, std::string_view name) {
  return std::string(action_name(action)).append(" '").append(name).append("'");
}

// Everything else is a fence for the fusion and never in the cache.
bool moves_tensors(Action action) {
  switch (action) {
    case Action::kAllreduce:
    case Action::kAllgather:
    case Action::kBroadcast:
    case Action::kAlltoall:
    case Action::kReducescatter:
      return true;
    default:
      return false;
  }
}

std::int64_t tensor_bytes(const Request& request) {
  if (!moves_tensors(request.action)) return 0;
  return element_count(request.shape) * static_cast<std::int64_t>(dtype_bytes(request.dtype));
}

// Defaults are not sent: decode_request() starts from a fresh Request.
void encode_request(WireWriter& out, const Request& request) {
  const std::uint8_t bits = field_bits(request);
  out.varint(static_cast<std::uint64_t>(request.action));
  out.u8(bits);
  out.varint(static_cast<std::uint64_t>(request.process_set));
  out.u8(static_cast<std::uint8_t>(request.dtype));
  out.u8(static_cast<std::uint8_t>(request.reduce_op));
  out.text(request.name);
  out.integers(request.shape);
  if (bits & kHasScale) {
    out.real(request.prescale);
    out.real(request.postscale);
  }
  if (bits & kHasRoot) out.integer(request.root);
  if (bits & kHasDevice) out.integer(request.device);
  if (bits & kHasPriority) out.integer(request.priority);
  if (bits & kHasSplits) out.integers(request.splits);
  if (bits & kHasGroup) {
    out.text(request.group);
    out.varint(static_cast<std::uint64_t>(request.group_size));
  }
  if (bits & kHasMembers) encode_members(out, request.members);
}

bool decode_request(WireReader& in, Request& request) {
  const std::uint64_t action = in.varint();
  const std::uint8_t bits = in.u8();
  // Read all fields before the checks: after a malformed one the reader returns zeros.
  request.process_set = static_cast<std::int32_t>(in.varint());
  const std::uint8_t dtype = in.u8();
  const std::uint8_t reduce_op = in.u8();
  // The bound keeps the narrowing in is_action() from turning a huge value into a valid one.
  if (!in.ok() || action > 1000 || !is_action(action) || !is_dtype(dtype) ||
      !is_reduce_op(reduce_op)) {
    return false;
  }
  // The casts are safe after the checks.
  request.action = static_cast<Action>(action);
  request.dtype = static_cast<hora_dtype>(dtype);
  request.reduce_op = static_cast<hora_reduce_op>(reduce_op);
  request.name = in.text();
  request.shape = in.integers<std::int64_t>();
  if (bits & kHasScale) {
    request.prescale = in.real();
    request.postscale = in.real();
  }
  if (bits & kHasRoot) request.root = static_cast<std::int32_t>(in.integer());
  if (bits & kHasDevice) request.device = static_cast<std::int32_t>(in.integer());
  if (bits & kHasPriority) request.priority = static_cast<std::int32_t>(in.integer());
  if (bits & kHasSplits) request.splits = in.integers<std::int64_t>();
  if (bits & kHasGroup) {
    request.group = in.text();
    request.group_size = static_cast<std::int32_t>(in.varint());
  }
  if ((bits & kHasMembers) != 0 && !decode_members(in, request)) return false;
  return in.ok();
}

void encode_response(WireWriter& out, const Response& response, int receiver) {
  out.u8(static_cast<std::uint8_t>(response.status));
  if (response.status != HORA_OK) out.text(response.error);
  encode_request(out, response.agreed);
  if (response.all_splits.empty()) {
    out.integers(response.numbers);
  } else {
    // The matrix is square, with one row per sender. Each receiver only needs its own column.
    std::size_t size = 1;
    while (size * size < response.all_splits.size()) ++size;
    // The same form as integers(), so that the receiver reads plain numbers.
    out.varint(size);
    for (std::size_t sender = 0; sender < size; ++sender) {
      out.integer(response.all_splits[sender * size + static_cast<std::size_t>(receiver)]);
    }
  }
  out.integers(response.joined);
}

bool decode_response(WireReader& in, Response& response) {
  const std::uint8_t status = in.u8();
  // HORA_REMOVED, the only larger status, never travels in a response.
  if (status > HORA_INTERNAL) return false;
  response.status = static_cast<hora_status>(status);
  if (response.status != HORA_OK) response.error = in.text();
  if (!decode_request(in, response.agreed)) return false;
  // For an alltoall these are the receiver's column.
  response.numbers = in.integers<std::int64_t>();
  response.joined = in.integers<std::int32_t>();
  return in.ok();
}

}  // namespace hora::collectives
