// SPDX-License-Identifier: Apache-2.0
// HTTP/1.x messages as plain values, shared by codec, server, client and the store's service.
// [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::http {

enum class Method : std::uint8_t { kGet, kHead, kPut, kDelete, kOther };
std::string_view method_name(Method method);

// A server's facts about a request before it reads the body.
struct RequestHead {
  Method method = Method::kOther;
  std::string target;      // as received: "/scope/key?wait=1", nothing decoded
  int minor_version = 1;   // HTTP/1.0 or HTTP/1.1
  bool keep_alive = true;  // the client may send another request on this connection
  bool expect_continue = false;
  bool chunked = false;
  std::optional<std::uint64_t> content_length;
  std::string authorization;  // "Bearer ..."; empty: none
};

struct ResponseHead {
  int status = 0;
  int minor_version = 1;
  bool keep_alive = true;
  std::optional<std::uint64_t> content_length;
  std::string server;  // the Server field; empty: none
};

// The standard phrase of a status, "" for one that this server never sends.
std::string_view reason_phrase(int status);

}  // namespace hora::http
