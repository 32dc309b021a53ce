// SPDX-License-Identifier: Apache-2.0
// Heads are small and frequent, so they are appended to the caller's buffer without streams or
// temporary strings.
#include "rendezvous/http/writer.h"

#include <array>
#include <charconv>

#include "rendezvous/base/encoding.h"

namespace hora::http {

namespace {

void append_number(std::string& out, std::uint64_t number) {
  // 20 digits hold any 64-bit number.
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  // An empty value means "no such field" in both structures.
  if (value.empty()) return;
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

void append_response_head(std::string& out, const ResponseFields& fields) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<std::uint64_t>(fields.status));
  out += ' ';
  out.append(reason_phrase(fields.status)).append("\r\n");
  append_field(out, "Server", fields.server);
  append_field(out, "Date", fields.date);
  append_field(out, "Content-Type", fields.content_type);
  // Always present, also for an empty body: without it the connection could not be kept alive.
  out += "Content-Length: ";
  append_number(out, fields.content_length);
  out += "\r\n";
  // Sent only where it differs from the default of the client's version.
  if (fields.minor_version >= 1 && !fields.keep_alive) out += "Connection: close\r\n";
  if (fields.minor_version == 0 && fields.keep_alive) out += "Connection: keep-alive\r\n";
  // The empty line that ends the head.
  out.append(fields.extra).append("\r\n");
}

// For clients that wait for permission before they send a large body.
void append_continue(std::string& out) { out += "HTTP/1.1 100 Continue\r\n\r\n"; }

void append_request_head(std::string& out, const RequestFields& fields) {
  out.append(method_name(fields.method)).append(" ").append(fields.target);
  out += " HTTP/1.1\r\n";
  append_field(out, "Host", fields.host);
  if (!fields.bearer_token.empty()) {
    out.append("Authorization: Bearer ").append(fields.bearer_token).append("\r\n");
  }
  out += "Content-Length: ";
  append_number(out, fields.content_length);
  out += "\r\n\r\n";
}

std::string format_date(std::time_t seconds) {
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  // strftime() would follow the locale.
  std::array<char, 64> text;
  const int length = std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                                   kDays[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                                   kMonths[static_cast<std::size_t>(parts.tm_mon)],
                                   parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

namespace {

// RFC 3986's unreserved characters, and the colon, which Horovod's scope names may contain.
bool stays_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~' || c == ':';
}

}  // namespace

std::string percent_encode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (stays_plain(c)) {
      out += c;
    } else {
      out += '%';
      // Lower-case digits: the server compares names as sent, and all clients use this function.
      out += to_hex({&c, 1});
    }
  }
  return out;
}

// Strict: a "%" without two digits is an error, not a literal.
std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto byte = text.size() - i > 2 ? from_hex(text.substr(i + 1, 2)) : std::nullopt;
    if (!byte) return std::nullopt;
    out += *byte;
    i += 2;
  }
  return out;
}

}  // namespace hora::http
