// SPDX-License-Identifier: Apache-2.0
// How a message of the agent protocol is described, and what follows from the description: its
// bytes both ways, its limits, and when it may come.  [pure]
//
//   struct LogLine {
//     static constexpr MessageRule kRule{FrameType::kLog, "log line", Longest{16 * 1024}};
//     int level = 0;
//     std::string message;
//     static void fields(auto& visit, auto& m) {
//       visit("level", m.level, Range{0, 4});
//       visit("message", m.message, Line{kMostText});
//     }
//   };
//
// fields() names each field once, in the order of the wire, with its limits; the classes below
// visit them. A message may also have `std::string contradiction() const`, for what a limit of one
// field cannot say: "'signal' comes with an exit code"; empty: there is none.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/protocol/cbor.h"
#include "launcher/protocol/frame.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

// --- descriptions --------------------------------------------------------------------------------

inline constexpr FrameType kNoFrame{0};
inline constexpr FrameType kHelloFrame{1};  // an agent's first
inline constexpr std::size_t kUnlimited = SIZE_MAX;

enum class Layout : std::uint8_t {
  kCbor,     // a map of its fields
  kNumbers,  // its numbers, 4 bytes each (1 for std::uint8_t); a text or a Tail takes the rest
  kFrames,   // whole frames, which another reader takes apart: the message has a `Frame frame`
};

// The properties of a rule. Most messages need one or two.
struct Longest {  // from an agent: bytes of the payload; of kNumbers, of what follows the numbers
  std::size_t bytes;
};
struct MostItems {
  std::size_t count;
};
struct UpTo {  // kFrames: the last of its types
  FrameType type;
};
// When it may come. `After` and `Before` count what is sent and what is received alike.
struct BeforeHello {};
struct After {
  FrameType type;
};
struct Before {
  FrameType type;
};
struct Times {  // at most
  std::size_t count;
};
struct Answers {  // once for each of these
  FrameType first;
  FrameType second = kNoFrame;
};
struct AnsweredBy {  // one at a time
  FrameType type;
};
struct OutOfTurn {  // names what came then, in place of "GPU fault: out of turn"
  std::string_view text;
};

struct MessageRule {
  template <typename... Properties>
  constexpr MessageRule(FrameType its_type, std::string_view its_name, Properties... properties)
      : type(its_type), name(its_name) {
    (set(properties), ...);
  }

  FrameType type;
  std::string_view name;  // in errors: "GPU fault"
  Layout layout = Layout::kCbor;
  std::size_t longest = 0;
  std::size_t most_items = kMaxCborItems;
  FrameType last_type = kNoFrame;
  bool before_hello = false;
  FrameType after = kNoFrame;
  FrameType before = kNoFrame;
  std::size_t times = kUnlimited;
  Answers answers{kNoFrame};
  FrameType answered_by = kNoFrame;
  std::string_view out_of_turn;

 private:
  constexpr void set(Layout its_layout) { layout = its_layout; }
  constexpr void set(Longest limit) { longest = limit.bytes; }
  constexpr void set(MostItems limit) { most_items = limit.count; }
  constexpr void set(UpTo last) { last_type = last.type; }
  constexpr void set(BeforeHello) { before_hello = true; }
  constexpr void set(After other) { after = other.type; }
  constexpr void set(Before other) { before = other.type; }
  constexpr void set(Times limit) { times = limit.count; }
  constexpr void set(Answers questions) { answers = questions; }
  constexpr void set(AnsweredBy answer) { answered_by = answer.type; }
  constexpr void set(OutOfTurn words) { out_of_turn = words.text; }
};

// The limits of fields. Those of texts: bytes.
struct Line {  // for people, on one line
  std::size_t most;
};
struct Block {  // for people
  std::size_t most;
};
struct Bytes {  // a path, or what a rank has printed
  std::size_t most;
};
struct Verbatim {  // a path for command lines: empty for display if it cannot be shown as it is
  std::size_t most;
};
struct Blocks {  // a Block; the limit is that of all entries of the list together
  std::size_t most;
};
struct Range {
  std::int64_t least;
  std::int64_t most;
};
struct AtMost {  // entries of a list. Limits behind it are those of each entry.
  std::size_t entries;
};
struct MayBeMissing {};  // kNumbers: the last one, which keeps its default then

// The bytes behind a message's numbers. They may be many: they stay in the payload that they came
// in.
class Tail {
 public:
  Tail() = default;
  Tail(std::string_view bytes) : payload_(bytes) {}
  Tail(const char* bytes) : payload_(bytes) {}
  Tail(const std::string& bytes) : payload_(bytes) {}
  Tail(std::string payload, std::size_t head) : payload_(std::move(payload)), head_(head) {}

  std::string_view view() const { return std::string_view(payload_).substr(head_); }
  operator std::string_view() const { return view(); }
  std::size_t size() const { return payload_.size() - head_; }
  bool empty() const { return size() == 0; }

 private:
  std::string payload_;
  std::size_t head_ = 0;
};

// What visits the fields of any message.
struct AnyVisitor {
  void operator()(const char* name, const auto& value, auto... limits);
};
template <typename T>
concept Described = requires(AnyVisitor visit, T& message) {
  T::fields(visit, message);
};
template <typename T>
concept Number = (std::is_integral_v<T> && !std::is_same_v<T, bool>);
// A message that has a frame of its own. Others are parts of messages, or travel elsewhere, and
// have a kName.
template <typename T>
concept Framed = requires {
  { T::kRule } -> std::convertible_to<MessageRule>;
};

template <Described Message>
constexpr std::string_view name_of() {
  if constexpr (Framed<Message>) {
    return Message::kRule.name;
  } else {
    return Message::kName;
  }
}

template <Described Message>
constexpr Layout layout_of() {
  if constexpr (Framed<Message>) {
    return Message::kRule.layout;
  } else {
    return Layout::kCbor;
  }
}

template <Framed Message>
constexpr bool comes_as(FrameType type) {
  constexpr MessageRule kRule = Message::kRule;
  return type == kRule.type || (type > kRule.type && type <= kRule.last_type);
}

// Calls `visit` with std::type_identity of the one of these messages that comes as `type`. False:
// none does.
template <typename... Messages, typename Visit>
bool visit_type(std::type_identity<std::variant<Messages...>>, FrameType type, Visit&& visit) {
  return ((comes_as<Messages>(type) && (visit(std::type_identity<Messages>{}), true)) || ...);
}

// --- the bytes of Layout::kCbor ------------------------------------------------------------------

// A message is read and written in one pass over its bytes: an order of a few kilobytes takes a
// tree of a thousand parts, and the tree a tenth of a millisecond on either side.
//
// Byte strings travel as CBOR binary, so that no step may mistake them for UTF-8.
class CborWriter {
 public:
  explicit CborWriter(std::string& out) : out_(out) {}

  template <typename T>
  void operator()(const char* name, const T& value, auto...) {
    append_cbor_string(out_, CborKind::kText, name);
    write(value);
  }

  template <Described T>
  void write(const T& message) {
    std::uint64_t count = 0;
    auto counter = [&count](const char*, const auto&, auto...) { ++count; };
    T::fields(counter, message);
    append_cbor_head(out_, CborKind::kMap, count);
    T::fields(*this, message);
  }

 private:
  void write(const std::string& text) { append_cbor_string(out_, CborKind::kBytes, text); }
  void write(bool value) {
    append_cbor_head(out_, CborKind::kSimple, value ? kCborTrue : kCborFalse);
  }
  template <typename T>
  requires(Number<T> || std::is_enum_v<T>) void write(T value) {
    if (value < T{}) {
      append_cbor_head(out_, CborKind::kNegative, ~static_cast<std::uint64_t>(value));
    } else {
      append_cbor_head(out_, CborKind::kUnsigned, static_cast<std::uint64_t>(value));
    }
  }
  template <typename A, typename B>
  void write(const std::pair<A, B>& pair) {
    append_cbor_head(out_, CborKind::kArray, 2);
    write(pair.first);
    write(pair.second);
  }
  template <typename T>
  void write(const std::vector<T>& items) {
    append_cbor_head(out_, CborKind::kArray, items.size());
    for (const T& item : items) write(item);
  }

  std::string& out_;
};

// Reads into the fields from bytes of a sound shape; the first fault is kept, the rest is skipped.
class CborReader {
 public:
  CborReader(std::string_view& bytes, std::uint64_t pairs);  // takes the pairs of a map

  template <typename T>
  void operator()(const char* name, T& value, auto...) {
    if (!fault_.empty()) return;
    std::string_view* found = find(name);
    if (found == nullptr) {
      fault_ = std::string("field '") + name + "' is missing";
    } else if (!take(*found, value)) {
      fault_ = std::string("field '") + name + "' has an unexpected value";
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  std::string_view* find(std::string_view name);

  static bool take(std::string_view& bytes, std::string& text);
  static bool take(std::string_view& bytes, bool& value);
  template <Number T>
  static bool take(std::string_view& bytes, T& value) {
    const CborItem item = take_cbor_item(bytes);
    if (item.number > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return false;
    value = static_cast<T>(item.number);
    if (item.kind == CborKind::kUnsigned) return true;
    value = static_cast<T>(~item.number);
    return item.kind == CborKind::kNegative && std::is_signed_v<T>;
  }
  // An enumerator up to last_of(): a larger number is not a value of the type.
  template <typename T>
  requires std::is_enum_v<T>
  static bool take(std::string_view& bytes, T& value) {
    std::uint8_t number = 0;
    if (!take(bytes, number) || number > static_cast<std::uint8_t>(last_of(T{}))) return false;
    value = static_cast<T>(number);
    return true;
  }
  template <typename A, typename B>
  static bool take(std::string_view& bytes, std::pair<A, B>& pair) {
    const CborItem item = take_cbor_item(bytes);
    return item.kind == CborKind::kArray && item.number == 2 && take(bytes, pair.first) &&
           take(bytes, pair.second);
  }
  template <typename T>
  static bool take(std::string_view& bytes, std::vector<T>& items) {
    const CborItem array = take_cbor_item(bytes);
    if (array.kind != CborKind::kArray) return false;
    items.clear();
    items.reserve(array.number);
    for (std::uint64_t left = array.number; left > 0; --left) {
      if (!take(bytes, items.emplace_back())) return false;
    }
    return true;
  }
  template <Described T>
  static bool take(std::string_view& bytes, T& message) {
    const CborItem map = take_cbor_item(bytes);
    if (map.kind != CborKind::kMap) return false;
    CborReader reader(bytes, map.number);
    T::fields(reader, message);
    return reader.fault().empty();
  }

  // Each value, and what follows it.
  std::vector<std::pair<std::string_view, std::string_view>> entries_;
  std::size_t next_ = 0;
  std::string fault_;
};

// --- the bytes of Layout::kNumbers ---------------------------------------------------------------

class NumbersWriter {
 public:
  explicit NumbersWriter(std::string& out) : out_(out) {}

  template <Number T>
  void operator()(const char*, T value, auto...) {
    append_little_endian(out_, static_cast<std::uint64_t>(value), sizeof value == 1 ? 1 : 4);
  }
  void operator()(const char*, Milliseconds value, auto...) {
    append_u32(out_, static_cast<std::uint32_t>(value.count()));
  }
  void operator()(const char*, std::string_view rest, auto...) { out_.append(rest); }

 private:
  std::string& out_;
};

class NumbersReader {
 public:
  explicit NumbersReader(std::string payload) : payload_(std::move(payload)) {}

  template <Number T, typename... Limits>
  void operator()(const char*, T& value, Limits...) {
    constexpr bool kMayBeMissing = (std::is_same_v<Limits, MayBeMissing> || ...);
    if (kMayBeMissing && at_ == payload_.size()) return;
    value = static_cast<T>(take(sizeof value == 1 ? 1 : 4));
  }
  void operator()(const char*, Milliseconds& value, auto...) { value = Milliseconds(take(4)); }
  void operator()(const char*, std::string& rest, auto...) { rest = payload_.substr(at_); }
  void operator()(const char*, Tail& rest, auto...) {
    if (!ended_early_) rest = Tail(std::move(payload_), at_);
  }
  bool ended_early() const { return ended_early_; }

 private:
  std::uint64_t take(std::size_t count);

  std::string payload_;
  std::size_t at_ = 0;
  bool ended_early_ = false;
};

// The size of the numbers alone.
template <Described Message>
std::size_t size_of_numbers() {
  std::size_t bytes = 0;
  auto counter = [&bytes]<typename T>(const char*, const T&, auto...) {
    if constexpr (Number<T> || std::is_same_v<T, Milliseconds>) bytes += sizeof(T) == 1 ? 1 : 4;
  };
  const Message message;
  Message::fields(counter, message);
  return bytes;
}

// --- whole messages ------------------------------------------------------------------------------

template <Described Message>
std::string encode(const Message& message) {
  static_assert(layout_of<Message>() != Layout::kFrames, "send its frame");
  std::string out;
  if constexpr (layout_of<Message>() == Layout::kNumbers) {
    NumbersWriter writer(out);
    Message::fields(writer, message);
  } else {
    CborWriter(out).write(message);
  }
  return out;
}

template <Framed Message>
std::string encode_frame(const Message& message) {
  return encode_frame(Message::kRule.type, encode(message));
}

// The pairs of the map that these bytes are, if their shape is sound.
Result<CborReader> open_message(std::string_view bytes, std::string_view name,
                                std::size_t most_items);
Error malformed(std::string_view name, std::string_view fault);

// Bytes from the network: anything malformed is an Error that names the field, never a throw.
template <Described Message>
Result<Message> decode(std::string_view bytes, std::size_t most_items) {
  static_assert(layout_of<Message>() == Layout::kCbor, "read its payload");
  auto reader = open_message(bytes, name_of<Message>(), most_items);
  if (!reader) return std::move(reader).error();
  Message message;
  Message::fields(*reader, message);
  if (!reader->fault().empty()) return malformed(name_of<Message>(), reader->fault());
  return message;
}
template <Described Message>
Result<Message> decode(std::string_view bytes) {
  if constexpr (Framed<Message>) {
    return decode<Message>(bytes, Message::kRule.most_items);
  } else {
    return decode<Message>(bytes, kMaxCborItems);
  }
}

// --- limits --------------------------------------------------------------------------------------

// The sender cuts what it says to the limits, fit(). A launcher does not rely on that: it refuses a
// message of which a number or a list is beyond them, check(), and makes its texts such that they
// can be shown, clean().

// Cuts lists and texts; a text says that it was cut.
class LimitCutter {
 public:
  explicit LimitCutter(bool for_display) : for_display_(for_display) {}

  template <typename T, typename... Limits>
  void operator()(const char*, T& value, Limits... limits) {
    apply(value, limits...);
  }

 private:
  template <typename T>
  requires(Number<T> || std::is_same_v<T, bool> || std::is_enum_v<T>) void apply(T&, auto...) {}
  template <typename T>
  void apply(std::pair<int, T>&, Range) {}
  void apply(Milliseconds&, auto...) {}
  void apply(Tail&) {}
  void apply(std::string& text) = delete;  // a text of an agent has a limit
  void apply(std::string& text, Line limit);
  void apply(std::string& text, Block limit);
  void apply(std::string& text, Bytes limit);
  void apply(std::string& text, Verbatim limit);
  void apply(std::string& text, Blocks limit);
  template <typename T, typename... Limits>
  void apply(std::vector<T>& list, AtMost limit, Limits... of_each) {
    if (list.size() > limit.entries) list.resize(limit.entries);
    apply(list, of_each...);
  }
  template <typename T, typename... Limits>
  void apply(std::vector<T>& list, Limits... of_each) {
    for (T& each : list) apply(each, of_each...);
  }
  template <Described T>
  void apply(T& nested) {
    T::fields(*this, nested);
  }

  bool for_display_;
  std::size_t in_blocks_ = 0;  // bytes that Blocks have taken
};

// The first thing that is wrong with a message.
class LimitChecker {
 public:
  template <typename T, typename... Limits>
  void operator()(const char* name, const T& value, Limits... limits) {
    apply(name, value, limits...);
  }
  template <Described T>
  void look_at(const T& message) {
    T::fields(*this, message);
    if constexpr (requires { message.contradiction(); }) {
      if (fault_.empty()) fault_ = message.contradiction();
    }
  }
  Status status() const;

 private:
  template <Number T>
  void apply(const char* name, T value, Range range, auto...) {
    const auto number = static_cast<std::int64_t>(value);
    if (number < range.least || number > range.most) {
      refuse(name, "is " + std::to_string(number));
    }
  }
  template <typename A, typename B>
  void apply(const char* name, const std::pair<A, B>& pair, Range of_second) {
    apply(name, pair.second, of_second);
  }
  template <typename T, typename... Limits>
  void apply(const char* name, const std::vector<T>& list, AtMost limit, Limits... of_each) {
    if (list.size() > limit.entries) {
      refuse(name, "has " + std::to_string(list.size()) + " entries");
    }
    apply(name, list, of_each...);
  }
  template <typename T, typename... Limits>
  void apply(const char* name, const std::vector<T>& list, Limits... of_each) {
    for (const T& each : list) apply(name, each, of_each...);
  }
  template <Described T>
  void apply(const char*, const T& nested) {
    look_at(nested);
  }
  template <typename T, typename... Limits>
  void apply(const char*, const T&, Limits...) {}  // a flag, a text

  void refuse(std::string_view name, const std::string& what);

  std::string fault_;
};

template <Described Message>
Message fit(Message message) {
  LimitCutter cutter(false);
  Message::fields(cutter, message);
  return message;
}
// fit(), and no control characters in its texts but in Bytes, which their printer escapes.
template <Described Message>
Message clean(Message message) {
  LimitCutter cutter(true);
  Message::fields(cutter, message);
  return message;
}
// The Error names the field.
template <Described Message>
Status check(const Message& message) {
  LimitChecker checker;
  checker.look_at(message);
  return checker.status();
}

// The payload of a frame, and whether its numbers and lists are within their limits.
template <Framed Message>
Result<Message> read_payload(Frame frame, std::size_t most_items = Message::kRule.most_items) {
  constexpr MessageRule kRule = Message::kRule;
  Message message;
  if constexpr (kRule.layout == Layout::kFrames) {
    message.frame = std::move(frame);
  } else if constexpr (kRule.layout == Layout::kNumbers) {
    NumbersReader reader(std::move(frame.payload));
    Message::fields(reader, message);
    if (reader.ended_early()) return malformed(kRule.name, "it ends early");
  } else {
    auto read = decode<Message>(frame.payload, most_items);
    if (!read) return std::move(read).error();
    message = std::move(*read);
  }
  if (const Status good = check(message); !good) {
    return malformed(kRule.name, good.error().message);
  }
  return message;
}

// --- turns ---------------------------------------------------------------------------------------

// What was sent and received so far: by it the rule of a message says whether it may come now.
class Turns {
 public:
  void note_sent(FrameType type) { ++count(sent_, type); }
  void note_received(FrameType type) { ++count(received_, type); }
  bool has_sent(FrameType type) const { return count(sent_, type) > 0; }
  bool has_received(FrameType type) const { return count(received_, type) > 0; }
  bool may_come(const MessageRule& rule) const;

 private:
  using Counts = std::array<std::uint64_t, 256>;
  static std::uint64_t& count(Counts& counts, FrameType type) {
    return counts[static_cast<std::uint8_t>(type)];
  }
  static std::uint64_t count(const Counts& counts, FrameType type) {
    return counts[static_cast<std::uint8_t>(type)];
  }
  bool was_said(FrameType type) const { return has_sent(type) || has_received(type); }

  Counts sent_{};
  Counts received_{};
};

}  // namespace hora::launcher
