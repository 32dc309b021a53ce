// SPDX-License-Identifier: Apache-2.0
// Turns trace records into Chrome trace events. Each tensor is a process of the picture, with the
// phases idle -> negotiating -> agreed -> running. Records may be missing (the ring was full, or
// the recording began in the middle), so every transition checks the phase: an end without a begin
// would break the nesting that viewers need.
#include "collectives/trace/chrome_format.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "collectives/types.h"

namespace hora::collectives {

namespace {

// Names come from user code and may have any length; a file of millions of events must not.
constexpr std::size_t kMostNameBytes = 512;
// Shorter waits are not drawn: they would double the events of every tensor.
constexpr std::int64_t kShortestWaitNs = 1000;

constexpr std::string_view kLabels[] = {"ALLREDUCE", "ALLGATHER",     "BROADCAST",
                                        "ALLTOALL",  "REDUCESCATTER", "ADASUM",
                                        "BARRIER",   "JOIN",          "ERROR"};

std::string_view label_text(TraceLabel label) {
  const auto at = static_cast<std::size_t>(label);
  return at < std::size(kLabels) ? kLabels[at] : "ERROR";
}

template <typename Integer>
void append_number(std::string& out, Integer value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

// Bytes of the UTF-8 sequence at the front of `text`; 0: there is none.
std::size_t sequence_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t length = 0;
  if (lead < 0x80) return 1;
  // C0 and C1 could only begin overlong forms; F5 and above are beyond U+10FFFF.
  if (lead >= 0xC2 && lead < 0xE0) length = 2;
  if (lead >= 0xE0 && lead < 0xF0) length = 3;
  if (lead >= 0xF0 && lead < 0xF5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
  if (lead == 0xED && second > 0x9F) return 0;  // a surrogate
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

std::string json_escaped(std::string_view text, std::size_t most_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    std::string piece;
    if (length == 0) {
      // U+FFFD for each byte that is not UTF-8: JSON allows no raw bytes.
      piece = "\xEF\xBF\xBD";
    } else if (text[0] == '"' || text[0] == '\\') {
      piece = {'\\', text[0]};
    } else if (static_cast<unsigned char>(text[0]) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(text[0]));
      piece = escaped;
    } else {
      piece = text.substr(0, length);
    }
    // Cut between characters, never within one.
    if (out.size() + piece.size() > most_bytes) break;
    out += piece;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

ChromeFormat::ChromeFormat(TraceIdentity identity, EventSink& sink)
    : identity_(std::move(identity)), sink_(sink), newest_ns_(identity_.start_ns) {}

void ChromeFormat::begin() {
  const std::string who = "rank " + std::to_string(identity_.rank);
  line_ = R"({"ph":"M","name":"process_name","pid":0,"args":{"name":")" + who +
          R"(","start_time_since_epoch_in_micros":)" + std::to_string(identity_.epoch_us) + "}}";
  finish();
  line_ = R"({"ph":"M","name":"process_sort_index","pid":0,"args":{"sort_index":0}})";
  finish();
  line_ = R"({"ph":"M","name":"hora","pid":0,"args":{"rank":)" + std::to_string(identity_.rank) +
          R"(,"size":)" + std::to_string(identity_.size) + R"(,"hostname":")" +
          json_escaped(identity_.hostname, kMostNameBytes) + R"(","start_ns":)" +
          std::to_string(identity_.start_ns) + R"(,"clock_offset_ns":)" +
          std::to_string(identity_.clock_offset_ns) + R"(,"clock_error_ns":)" +
          std::to_string(identity_.clock_error_ns) + "}}";
  finish();
}

void ChromeFormat::open(char phase, std::int64_t time_ns) {
  // A request may have been submitted before the recording began.
  const std::int64_t ns = std::max<std::int64_t>(time_ns - identity_.start_ns, 0);
  line_ = R"({"ph":")";
  line_ += phase;
  line_ += R"(","ts":)";
  // The format counts microseconds; digits after the point keep nanoseconds. Written by hand: this
  // runs for every event.
  append_number(line_, ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  if (rest == 0) return;
  line_ += '.';
  line_ += static_cast<char>('0' + rest / 100);
  line_ += static_cast<char>('0' + rest / 10 % 10);
  line_ += static_cast<char>('0' + rest % 10);
}

void ChromeFormat::add_name(std::string_view name, std::string_view prefix) {
  line_ += R"(,"name":")";
  line_ += prefix;
  line_ += name;
  line_ += '"';
}

void ChromeFormat::add_process(std::uint32_t number) {
  line_ += R"(,"pid":)";
  append_number(line_, number);
}

void ChromeFormat::finish() { sink_.event(line_); }

void ChromeFormat::emit(char phase, std::string_view name, std::uint32_t number,
                        std::int64_t time_ns, std::string_view prefix) {
  open(phase, time_ns);
  add_name(name, prefix);
  add_process(number);
  line_ += '}';
  finish();
}

void ChromeFormat::emit_end(std::uint32_t number, std::int64_t time_ns,
                            std::string_view arguments) {
  open('E', time_ns);
  add_process(number);
  line_ += arguments;
  line_ += '}';
  finish();
}

ChromeFormat::Tensor& ChromeFormat::tensor(std::uint32_t number) {
  if (number >= tensors_.size()) tensors_.resize(number + 1);
  return tensors_[number];
}

void ChromeFormat::name_tensor(std::uint32_t number, std::string_view name) {
  tensor(number) = Tensor();
  const std::string pid = std::to_string(number);
  line_ = R"({"ph":"M","name":"process_name","pid":)" + pid + R"(,"args":{"name":")" +
          json_escaped(name, kMostNameBytes) + R"("}})";
  finish();
  line_ = R"({"ph":"M","name":"process_sort_index","pid":)" + pid + R"(,"args":{"sort_index":)" +
          pid + "}}";
  finish();
}

void ChromeFormat::set_shape(Tensor& tensor, std::uint32_t dtype, std::string_view shape) {
  tensor.outcome = R"(,"args":{"dtype":")";
  tensor.outcome += is_dtype(static_cast<std::int32_t>(dtype))
                        ? dtype_name(static_cast<hora_dtype>(dtype))
                        : "unknown";
  tensor.outcome += R"(","shape":")";
  tensor.outcome += json_escaped(shape, kMostNameBytes);
  tensor.outcome += R"("})";
}

void ChromeFormat::start_negotiation(std::uint32_t number, TraceLabel label, std::int64_t time_ns) {
  Tensor& state = tensor(number);
  // The first request begins the negotiation, whichever rank it comes from.
  if (state.phase == Phase::kNegotiating || state.phase == Phase::kRunning) return;
  state.phase = Phase::kNegotiating;
  state.label = label;
  emit('B', label_text(label), number, time_ns, "NEGOTIATE_");
}

void ChromeFormat::agree(std::uint32_t number, TraceLabel label, std::int64_t time_ns) {
  Tensor& state = tensor(number);
  if (state.phase != Phase::kNegotiating) return;  // begun before the recording
  emit_end(number, time_ns);
  state.phase = Phase::kIdle;
  if (label == TraceLabel::kError) {
    emit('B', label_text(label), number, time_ns);
    emit_end(number, time_ns);
  } else if (label != TraceLabel::kJoin) {  // nothing runs for a join
    state.phase = Phase::kAgreed;
    state.label = label;
    state.agreed_ns = time_ns;
  }
}

ChromeFormat::Step& ChromeFormat::step(std::uint16_t place) {
  if (place >= steps_.size()) steps_.resize(place + std::size_t{1});
  return steps_[place];
}

void ChromeFormat::start_step(Step& step, std::string_view numbers, std::int64_t time_ns) {
  end_step(step, false, time_ns);  // if its end was lost
  for (std::size_t at = 0; at + sizeof(std::uint32_t) <= numbers.size();
       at += sizeof(std::uint32_t)) {
    std::uint32_t number = 0;
    // The payload is a byte string without alignment.
    std::memcpy(&number, numbers.data() + at, sizeof number);
    Tensor& state = tensor(number);
    if (state.phase != Phase::kAgreed) continue;
    state.phase = Phase::kRunning;
    step.tensors.push_back(number);
    // Dated back to the agreement, so that the wait for earlier steps is inside.
    emit('B', label_text(state.label), number, state.agreed_ns);
    if (time_ns - state.agreed_ns < kShortestWaitNs) continue;
    emit('B', "WAIT_FOR_OTHER_TENSOR_DATA", number, state.agreed_ns);
    emit_end(number, time_ns);
  }
}

void ChromeFormat::end_step(Step& step, bool good, std::int64_t time_ns) {
  for (const std::uint32_t number : step.tensors) {
    // A step that failed may leave activities open.
    for (int i = 0; i < step.open_activities; ++i) emit_end(number, time_ns);
    Tensor& state = tensor(number);
    const bool has_output = good && state.label != TraceLabel::kBarrier;
    emit_end(number, time_ns, has_output ? std::string_view(state.outcome) : std::string_view());
    state.phase = Phase::kIdle;
  }
  step.tensors.clear();
  step.open_activities = 0;
}

void ChromeFormat::consume(const char* bytes) {
  const TraceRecord record = read_trace_record(bytes);
  const std::string_view payload = trace_payload(bytes, record);
  newest_ns_ = std::max(newest_ns_, record.time_ns);
  switch (record.kind) {
    case TraceKind::kTensor:
      return name_tensor(record.tensor, payload);
    case TraceKind::kShape:
      return set_shape(tensor(record.tensor), record.value, payload);
    case TraceKind::kTaken:
      return start_negotiation(record.tensor, static_cast<TraceLabel>(record.value),
                               record.time_ns);
    case TraceKind::kArrived:
      start_negotiation(record.tensor, static_cast<TraceLabel>(record.extra), record.time_ns);
      open('X', record.time_ns);
      add_name(std::to_string(record.value));
      add_process(record.tensor);
      line_ += R"(,"dur":0})";
      return finish();
    case TraceKind::kAgreed:
      return agree(record.tensor, static_cast<TraceLabel>(record.value), record.time_ns);
    case TraceKind::kStepBegins:
      return start_step(step(record.extra), payload, record.time_ns);
    case TraceKind::kActivityBegins: {
      Step& its = step(record.extra);
      ++its.open_activities;
      for (const std::uint32_t number : its.tensors) emit('B', payload, number, record.time_ns);
      return;
    }
    case TraceKind::kActivityEnds: {
      Step& its = step(record.extra);
      if (its.open_activities == 0) return;  // begun before the recording
      --its.open_activities;
      for (const std::uint32_t number : its.tensors) emit_end(number, record.time_ns);
      return;
    }
    case TraceKind::kStepEnds:
      return end_step(step(record.extra), record.value != 0, record.time_ns);
    case TraceKind::kCycle:
      return remark("CYCLE_START", record.time_ns);
    case TraceKind::kLost:
      return remark("LOST_OPERATIONS_" + std::to_string(record.value), record.time_ns);
  }
}

void ChromeFormat::remark(std::string_view text, std::int64_t time_ns) {
  open('i', time_ns);
  add_name(text);
  line_ += R"(,"s":"g"})";
  finish();
}

}  // namespace hora::collectives
