// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/schema.h"

namespace hora::launcher {

Error malformed(std::string_view name, std::string_view fault) {
  return make_error(ErrorCode::kFailed, std::string(name) + ": " + std::string(fault));
}

Result<CborReader> open_message(std::string_view bytes, std::string_view name,
                                std::size_t most_items) {
  if (const Status shape = check_cbor_shape(bytes, most_items); !shape) {
    return malformed(name, shape.error().message);
  }
  const CborItem map = take_cbor_item(bytes);
  if (map.kind != CborKind::kMap) return malformed(name, "not a CBOR map");
  return CborReader(bytes, map.number);
}

CborReader::CborReader(std::string_view& bytes, std::uint64_t pairs) {
  for (; pairs > 0; --pairs) {
    const CborItem name = take_cbor_item(bytes);
    const std::string_view value = bytes;
    skip_cbor_value(bytes);
    if (name.kind == CborKind::kText) entries_.emplace_back(name.string, value);
  }
}

// As a rule they come in the order in which they are asked for.
std::string_view* CborReader::find(std::string_view name) {
  for (std::size_t looked = 0; looked < entries_.size(); ++looked) {
    auto& [own, value] = entries_[next_];
    next_ = next_ + 1 == entries_.size() ? 0 : next_ + 1;
    if (own == name) return &value;
  }
  return nullptr;
}

bool CborReader::take(std::string_view& bytes, std::string& text) {
  const CborItem item = take_cbor_item(bytes);
  if (item.kind != CborKind::kBytes) return false;
  text.assign(item.string);
  return true;
}

bool CborReader::take(std::string_view& bytes, bool& value) {
  const CborItem item = take_cbor_item(bytes);
  value = item.number == kCborTrue;
  return item.kind == CborKind::kSimple && (item.number == kCborTrue || item.number == kCborFalse);
}

std::uint64_t NumbersReader::take(std::size_t count) {
  if (payload_.size() - at_ < count) {
    ended_early_ = true;
    return 0;
  }
  at_ += count;
  return load_little_endian(std::string_view(payload_).substr(at_ - count, count));
}

// --- limits --------------------------------------------------------------------------------------

void LimitCutter::apply(std::string& text, Bytes limit) {
  if (text.size() > limit.most) text = shortened(text, limit.most);
}

void LimitCutter::apply(std::string& text, Line limit) {
  apply(text, Bytes{limit.most});
  if (for_display_) text = visible_line(text);
}

void LimitCutter::apply(std::string& text, Block limit) {
  apply(text, Bytes{limit.most});
  if (for_display_) text = visible(text);
}

void LimitCutter::apply(std::string& text, Verbatim limit) {
  apply(text, Bytes{limit.most});
  if (for_display_ && text != visible_line(text)) text.clear();
}

void LimitCutter::apply(std::string& text, Blocks limit) {
  constexpr std::size_t kLeast = 64;  // says how much is left out
  apply(text, Block{std::max(limit.most - in_blocks_, kLeast)});
  in_blocks_ = std::min(limit.most, in_blocks_ + text.size());
}

void LimitChecker::refuse(std::string_view name, const std::string& what) {
  if (fault_.empty()) fault_ = "'" + std::string(name) + "' " + what;
}

Status LimitChecker::status() const {
  return fault_.empty() ? Status(Ok{}) : make_error(ErrorCode::kFailed, fault_);
}

// --- turns ---------------------------------------------------------------------------------------

bool Turns::may_come(const MessageRule& rule) const {
  if (!rule.before_hello && !was_said(kHelloFrame)) return false;
  if (rule.after != kNoFrame && !was_said(rule.after)) return false;
  if (rule.before != kNoFrame && was_said(rule.before)) return false;
  const std::uint64_t before = count(received_, rule.type);
  if (before >= rule.times) return false;
  const auto [first, second] = rule.answers;
  if (first != kNoFrame && before >= count(sent_, first) + count(sent_, second)) return false;
  return rule.answered_by == kNoFrame || before <= count(sent_, rule.answered_by);
}

}  // namespace hora::launcher
