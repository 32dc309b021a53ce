// SPDX-License-Identifier: Apache-2.0
// Horovod's workers speak Python's pickle over TCP. Unpickling can run code, so this reader
// implements only the operations that build numbers, texts, lists, tuples and dictionaries, and
// refuses all others. All sizes are bounded: a worker is not trusted.
#include "launcher/elastic/horovod_wire.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/base/little_endian.h"

namespace hora::launcher::elastic {

namespace {

constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kHeadBytes = kDigestBytes + 4;
constexpr std::size_t kLongestAnswer = 1u << 20;
constexpr std::size_t kMostValues = 100'000;
// A pickle may name a value again and again, each time twice as large. So the reader counts what it
// builds, in values and bytes of text.
constexpr std::size_t kMostWork = 4u << 20;
constexpr std::size_t kDeepest = 16;

// A value of a pickle. Lists and tuples are the same here; a dictionary holds its keys and values
// in turn.
struct Value {
  enum class Kind { kMark, kNumber, kText, kBytes, kSequence, kDictionary };
  Kind kind = Kind::kMark;
  std::int64_t number = 0;
  std::string text{};
  std::vector<Value> parts{};
  std::size_t depth = 0;  // of the values inside
};

// The depth is bounded, so this recursion is, too.
std::size_t weight(const Value& value) {
  std::size_t sum = 1 + value.text.size();
  for (const Value& part : value.parts) sum += weight(part);
  return sum;
}

bool put_into(Value& home, Value part) {
  home.depth = std::max(home.depth, part.depth + 1);
  home.parts.push_back(std::move(part));
  return home.depth <= kDeepest;
}

// A pickle is a program for a stack machine: each byte code pushes a value or combines the topmost
// ones. '.' ends it and leaves one value.
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<Value> read() {
    for (std::size_t steps = 0; steps < kMostValues; ++steps) {
      if (rest_.empty()) return std::nullopt;
      const auto code = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (code == '.') {
        if (stack_.size() != 1 || stack_.front().kind == Value::Kind::kMark) return std::nullopt;
        return std::move(stack_.front());
      }
      if (!apply(code)) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  using Kind = Value::Kind;

  // The cases are the codes of pickletools; protocol 4 writes them, with those of 2 and 3 in
  // between.
  bool apply(unsigned char code) {
    switch (code) {
      case 0x80:  // the protocol's version
        return take(1).has_value();
      case 0x95:  // the length of a frame
        return take(8).has_value();
      case '}':
        return push(Kind::kDictionary);
      case ']':
      case ')':
        return push(Kind::kSequence);
      case '(':
        return push(Kind::kMark);
      case 'K':
        return push_number(1);
      case 'M':
        return push_number(2);
      case 'J':
        return push_number(4);
      case 0x8C:
        return push_text(Kind::kText, 1);
      case 'X':
        return push_text(Kind::kText, 4);
      case 'C':
        return push_text(Kind::kBytes, 1);
      case 'B':
        return push_text(Kind::kBytes, 4);
      // TUPLE1 to TUPLE3.
      case 0x85:
      case 0x86:
      case 0x87:
        return gather(static_cast<std::size_t>(code - 0x84));
      case 't':
        return gather_to_mark();
      case 'a':
        return append(1, Kind::kSequence);
      case 's':
        return append(2, Kind::kDictionary);
      case 'e':
        return append_to_mark(Kind::kSequence);
      case 'u':
        return append_to_mark(Kind::kDictionary);
      // MEMOIZE, then BINPUT and LONG_BINPUT; BINGET and LONG_BINGET follow.
      case 0x94:
        return !stack_.empty() && remember(memo_.size());
      case 'q':
        return remember_at(number(1));
      case 'r':
        return remember_at(number(4));
      case 'h':
        return recall(number(1));
      case 'j':
        return recall(number(4));
      default:
        // Refuse everything else, which includes all codes that can run code.
        return false;
    }
  }

  bool remember_at(std::optional<std::int64_t> place) {
    return place && !stack_.empty() && remember(static_cast<std::size_t>(*place));
  }
  bool recall(std::optional<std::int64_t> place) {
    const auto found = place ? memo_.find(static_cast<std::size_t>(*place)) : memo_.end();
    if (found == memo_.end() || !spend(weight(found->second))) return false;
    stack_.push_back(found->second);
    return true;
  }

  // Every read goes through here, so none passes the end.
  std::optional<std::string_view> take(std::size_t count) {
    if (rest_.size() < count) return std::nullopt;
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  // Little-endian, and unsigned in all cases that occur.
  std::optional<std::int64_t> number(std::size_t bytes) {
    const auto taken = take(bytes);
    if (!taken) return std::nullopt;
    return static_cast<std::uint32_t>(load_little_endian(*taken));
  }
  bool push(Kind kind) {
    stack_.push_back({.kind = kind});
    return true;
  }
  bool push_number(std::size_t bytes) {
    const auto value = number(bytes);
    if (!value) return false;
    stack_.push_back({.kind = Kind::kNumber, .number = *value});
    return true;
  }
  bool push_text(Kind kind, std::size_t length_bytes) {
    const auto length = number(length_bytes);
    const auto text = length ? take(static_cast<std::size_t>(*length)) : std::nullopt;
    if (!text || !spend(text->size())) return false;
    stack_.push_back({.kind = kind, .text = std::string(*text)});
    return true;
  }
  // Turns the last `count` values into one sequence.
  bool gather(std::size_t count) {
    if (stack_.size() < count) return false;
    Value tuple{.kind = Kind::kSequence};
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      if (stack_[i].kind == Kind::kMark || !put_into(tuple, std::move(stack_[i]))) return false;
    }
    stack_.resize(stack_.size() - count);
    stack_.push_back(std::move(tuple));
    return true;
  }
  std::optional<std::size_t> above_mark() const {
    for (std::size_t i = stack_.size(); i > 0; --i) {
      if (stack_[i - 1].kind == Kind::kMark) return stack_.size() - i;
    }
    return std::nullopt;
  }
  bool gather_to_mark() {
    const auto count = above_mark();
    if (!count || !gather(*count)) return false;
    stack_.erase(stack_.end() - 2);
    return true;
  }
  // Moves the last `count` values into the container below them.
  bool append(std::size_t count, Kind kind) {
    if (stack_.size() < count + 1) return false;
    const std::size_t home = stack_.size() - count - 1;
    if (stack_[home].kind != kind) return false;
    for (std::size_t i = home + 1; i < stack_.size(); ++i) {
      if (!put_into(stack_[home], std::move(stack_[i]))) return false;
    }
    stack_.resize(home + 1);
    return true;
  }
  bool append_to_mark(Kind kind) {
    const auto count = above_mark();
    if (!count) return false;
    stack_.erase(stack_.end() - static_cast<std::ptrdiff_t>(*count) - 1);
    return append(*count, kind);
  }
  // Stores a copy of the value as it is now. In Python, the name would refer to the live container,
  // but no message of this kind uses that.
  bool remember(std::size_t place) {
    if (!spend(weight(stack_.back()))) return false;
    Value shallow = stack_.back();
    if (shallow.parts.size() > 64) shallow.parts.clear();
    memo_[place] = std::move(shallow);
    return true;
  }
  bool spend(std::size_t amount) {
    spent_ += amount;
    return spent_ <= kMostWork;
  }

  std::string_view rest_;
  std::vector<Value> stack_;
  std::map<std::size_t, Value> memo_;
  std::size_t spent_ = 0;
};

Error malformed() {
  return make_error(ErrorCode::kFailed, "a worker sent an address that is not of Horovod's form");
}

// The frame is an HMAC-SHA256 of the body, the body's length in four little-endian bytes, and the
// body.
std::string sign(std::string_view key, std::string_view body) {
  std::string message = hmac_sha256(key, body);
  append_little_endian(message, body.size(), 4);
  return message.append(body);
}

}  // namespace

Result<WorkerContact> parse_worker_contact(std::string_view base64) {
  const auto bytes = from_base64(base64);
  if (!bytes) return malformed();
  // The value is a pair: a dictionary from interface to addresses, and the key.
  const auto pickled = PickleReader(*bytes).read();
  using Kind = Value::Kind;
  if (!pickled || pickled->kind != Kind::kSequence || pickled->parts.size() != 2)
    return malformed();
  const Value& addresses = pickled->parts[0];
  const Value& key = pickled->parts[1];
  if (addresses.kind != Kind::kDictionary || addresses.parts.size() % 2 != 0 ||
      key.kind != Kind::kBytes || key.text.empty()) {
    return malformed();
  }
  WorkerContact contact;
  contact.key = key.text;
  // Odd places hold the values; the interfaces' names do not matter.
  for (std::size_t i = 1; i < addresses.parts.size(); i += 2) {
    for (const Value& each : addresses.parts[i].parts) {
      if (each.parts.size() != 2 || each.parts[1].kind != Kind::kNumber) return malformed();
      const auto address = parse_ip_address(each.parts[0].text);
      const std::int64_t port = each.parts[1].number;
      if (!address || port < 1 || port > 65'535) return malformed();
      contact.endpoints.push_back({*address, static_cast<std::uint16_t>(port)});
    }
  }
  return contact;
}

// Exactly what Python would write for HostsUpdatedRequest(timestamp, res): a class by name, built
// with an empty tuple, and its state as a dictionary.
std::string hosts_updated_message(std::string_view key, std::int64_t timestamp, int result) {
  std::string body("\x80\x04");
  body += "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(";
  body += std::string("\x8c\x09") + "timestamp" + "\x8a\x08";
  append_little_endian(body, static_cast<std::uint64_t>(timestamp), 8);
  body += std::string("\x8c\x03") + "res" + "chorovod.runner.elastic.worker\nHostUpdateResult\nK";
  body.push_back(static_cast<char>(result));
  body += "\x85Rub.";
  return sign(key, body);
}

// Returns nothing until the answer is complete.
Result<std::optional<std::string>> read_signed_message(std::string_view key,
                                                       std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return std::optional<std::string>();
  const std::size_t length = load_u32(bytes.data() + kDigestBytes);
  if (length > kLongestAnswer) return make_error(ErrorCode::kFailed, "an answer without an end");
  if (bytes.size() < kHeadBytes + length) return std::optional<std::string>();
  const std::string_view body = bytes.substr(kHeadBytes, length);
  const std::string wanted = hmac_sha256(key, body);
  // The comparison takes the same time wherever the signatures differ.
  unsigned char apart = 0;
  for (std::size_t i = 0; i < kDigestBytes; ++i) {
    apart = static_cast<unsigned char>(apart | (wanted[i] ^ bytes[i]));
  }
  if (apart != 0) return make_error(ErrorCode::kDenied, "an answer with a wrong signature");
  return std::optional<std::string>(body);
}

}  // namespace hora::launcher::elastic
