// SPDX-License-Identifier: Apache-2.0
// A small blocking HTTP client for one server: numeric address or name, one connection that it
// keeps alive. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/http/message.h"
#include "rendezvous/http/reader.h"
#include "rendezvous/net/stream.h"

namespace hora::http {

struct ClientOptions {
  std::string host;  // "10.0.0.1", "::1", "[::1]", "head.example"
  std::uint16_t port = 0;
  std::string bearer_token;             // empty: none
  net::ConnectStream make_stream = {};  // none: plain HTTP
  std::uint64_t max_body_bytes = std::uint64_t{1} << 30;
};

struct Request {
  Method method = Method::kGet;
  std::string_view target;
  std::string_view body = {};  // PUT only
};

struct Response {
  ResponseHead head;
  std::string body;
};

class Client {
 public:
  explicit Client(ClientOptions options);

  // Sends one request and returns its response. Any status is a response; an Error means that none
  // came: kUnavailable (refused, reset, closed), kTimedOut, kNotFound (host name). If the server
  // has closed an idle connection, this makes a new one, once, without notice to the caller; every
  // method here can be repeated without harm.
  Result<Response> send(const Request& request, Deadline deadline);

  // Closes the connection; the next request makes a new one.
  void disconnect();
  // For tests and figures.
  std::uint64_t connections_made() const { return connections_made_; }

 private:
  struct Attempt;
  Result<Response> try_send(const Request& request, Deadline deadline, bool& server_was_silent);
  Result<Response> read_response(bool head_only, Deadline deadline, bool& server_was_silent);
  Status connect(Deadline deadline);

  ClientOptions options_;
  std::string host_field_;
  std::unique_ptr<net::Stream> stream_;  // null: not connected
  ResponseReader reader_;
  std::string outgoing_;
  std::string incoming_;  // received, not used yet
  std::uint64_t connections_made_ = 0;
};

}  // namespace hora::http
