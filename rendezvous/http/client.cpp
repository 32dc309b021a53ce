// SPDX-License-Identifier: Apache-2.0
// One connection, one request at a time: no pipelining, so a response always belongs to the last
// request. After any error the connection is closed, because its state is unknown.
#include "rendezvous/http/client.h"

#include <array>

#include "rendezvous/http/writer.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"

namespace hora::http {

namespace {

std::string host_field(const ClientOptions& options) {
  // RFC 3986, 3.2.2: an IPv6 address in a Host field has brackets.
  const bool bare_v6 = options.host.find(':') != std::string::npos && options.host.front() != '[';
  const std::string host = bare_v6 ? "[" + options.host + "]" : options.host;
  return host + ":" + std::to_string(options.port);
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)), host_field_(host_field(options_)) {
  reader_.allow_body(options_.max_body_bytes);
}

void Client::disconnect() {
  stream_.reset();
  incoming_.clear();
  reader_.reset();
}

Status Client::connect(Deadline deadline) {
  auto fd = net::connect_host(options_.host, options_.port, deadline);
  if (!fd) return std::move(fd).error();
  if (options_.make_stream) {
    auto stream = options_.make_stream(std::move(*fd), deadline);
    if (!stream) return std::move(stream).error().with_context(host_field_);
    stream_ = std::move(*stream);
  } else {
    stream_ = std::make_unique<net::Stream>(std::move(*fd));
  }
  ++connections_made_;
  return Ok{};
}

Result<Response> Client::send(const Request& request, Deadline deadline) {
  const bool reused = stream_ != nullptr;
  bool server_was_silent = true;
  auto response = try_send(request, deadline, server_was_silent);
  // The server may have closed an idle connection just before the request reached it. Repeat only
  // if it sent nothing at all: half a response is an error.
  if (!response && reused && server_was_silent && response.error().code != ErrorCode::kTimedOut) {
    response = try_send(request, deadline, server_was_silent);
  }
  return response;
}

Result<Response> Client::try_send(const Request& request, Deadline deadline,
                                  bool& server_was_silent) {
  if (stream_ == nullptr) HORA_TRY(connect(deadline));
  outgoing_.clear();
  append_request_head(outgoing_, {.method = request.method,
                                  .target = request.target,
                                  .host = host_field_,
                                  .bearer_token = options_.bearer_token,
                                  .content_length = request.body.size()});
  // A small request leaves in one segment; a large body is not copied.
  constexpr std::size_t kCopied = 16 * 1024;
  const bool whole = request.body.size() <= kCopied;
  if (whole) outgoing_.append(request.body);
  Status sent = net::send_all(*stream_, outgoing_, deadline);
  if (sent && !whole) sent = net::send_all(*stream_, request.body, deadline);
  if (!sent && sent.error().code == ErrorCode::kTimedOut) {
    disconnect();
    return std::move(sent).error().with_context("to " + host_field_);
  }
  // A server that refuses a body answers and closes: its response may be readable even though
  // sending failed.
  auto response = read_response(request.method == Method::kHead, deadline, server_was_silent);
  if (!response) {
    disconnect();
    return std::move(response).error().with_context("from " + host_field_);
  }
  // The rest of an unsent body would be taken for the next request.
  if (!sent || !response->head.keep_alive) disconnect();
  return response;
}

Result<Response> Client::read_response(bool head_only, Deadline deadline, bool& server_was_silent) {
  std::array<char, net::Stream::kLeastRoom> buffer;
  reader_.reset();
  for (;;) {
    std::string_view bytes = incoming_;
    ReadStep step = ReadStep::kHead;
    // The body's limit was set in the constructor, so kHead needs no decision.
    while (step == ReadStep::kHead) step = reader_.read(bytes, head_only);
    // Bytes beyond the response stay for the next one.
    incoming_.erase(0, incoming_.size() - bytes.size());
    if (step == ReadStep::kNeedMore) {
      auto got = net::receive_some(*stream_, buffer.data(), buffer.size(), deadline);
      if (!got) return std::move(got).error();
      // From here on the server has answered, so the request must not be repeated.
      if (*got > 0) {
        server_was_silent = false;
        incoming_.append(buffer.data(), *got);
        continue;
      }
      step = reader_.end_of_stream();
      if (step == ReadStep::kError) {
        return make_error(ErrorCode::kUnavailable, std::string(reader_.error_text()));
      }
    }
    if (step == ReadStep::kError) {
      return make_error(ErrorCode::kFailed, std::string(reader_.error_text()));
    }
    return Response{reader_.head(), reader_.take_body()};
  }
}

}  // namespace hora::http
