// SPDX-License-Identifier: Apache-2.0
// HTTP/1.x heads to bytes, appended to a buffer that the caller keeps, so that the steady state
// allocates nothing.  [pure]
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "rendezvous/http/message.h"

namespace hora::http {

struct ResponseFields {
  int status = 200;
  std::uint64_t content_length = 0;
  int minor_version = 1;  // of the request: what the client understands
  bool keep_alive = true;
  std::string_view server = {};        // "hora/0.1.0"
  std::string_view date = {};          // format_date()
  std::string_view content_type = {};  // empty: none
  std::string_view extra = {};         // further whole lines, each ending in CRLF
};

void append_response_head(std::string& out, const ResponseFields& fields);
void append_continue(std::string& out);  // HTTP/1.1 100 Continue

struct RequestFields {
  Method method = Method::kGet;
  std::string_view target = {};
  std::string_view host = {};          // the Host field: "10.0.0.1:80"
  std::string_view bearer_token = {};  // empty: none
  std::uint64_t content_length = 0;
};

void append_request_head(std::string& out, const RequestFields& fields);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string format_date(std::time_t seconds);

// Returns `text` with every byte that has a meaning in a path or query as %XX; and the inverse,
// which returns nothing for a malformed escape.
std::string percent_encode(std::string_view text);
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace hora::http
