// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "rendezvous/http/reader.h"
#include "rendezvous/http/writer.h"
#include "tests/support/catch.h"

using namespace hora::http;
using namespace std::string_literals;

namespace {

struct Read {
  RequestHead head;
  std::string body;
};

// The output of a stream that was handed over in pieces of `step` bytes.
struct Outcome {
  std::vector<Read> requests;
  int error_status = 0;
  std::string unread;
};

Outcome read_requests(std::string_view stream, std::size_t step, std::uint64_t body_limit = 1 << 20,
                      const ReadLimits& limits = {}) {
  RequestReader reader(limits);
  Outcome out;
  std::string buffer;
  for (std::size_t at = 0; at < stream.size(); at += step) {
    buffer += stream.substr(at, step);
    std::string_view bytes = buffer;
    for (bool more = true; more;) {
      switch (reader.read(bytes)) {
        case ReadStep::kNeedMore:
          more = false;
          break;
        case ReadStep::kHead:
          reader.allow_body(body_limit);
          break;
        case ReadStep::kComplete:
          out.requests.push_back({reader.head(), reader.take_body()});
          reader.reset();
          break;
        case ReadStep::kError:
          out.error_status = reader.error_status();
          return out;
      }
    }
    buffer = std::string(bytes);
  }
  out.unread = buffer;
  return out;
}

int error_of(std::string_view stream, const ReadLimits& limits = {}) {
  const Outcome whole = read_requests(stream, stream.size(), 1 << 20, limits);
  const Outcome bytewise = read_requests(stream, 1, 1 << 20, limits);
  CHECK(whole.error_status == bytewise.error_status);
  return whole.error_status;
}

}  // namespace

TEST_CASE("a request comes out as it was sent, however it was cut") {
  const std::string stream =
      "GET /global/0?wait=1 HTTP/1.1\r\nHost: 10.0.0.1\r\nAuthorization: Bearer abc\r\n\r\n"
      "PUT /global/1 HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 5\r\n\r\nhe\0lo"s
      "DELETE /global/1 HTTP/1.0\r\n\r\n"
      "\r\n\r\nHEAD / HTTP/1.1\r\nConnection: close\r\n\r\n"
      "PATCH /x HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 0\r\n\r\n";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    CAPTURE(step);
    const Outcome out = read_requests(stream, step);
    REQUIRE(out.error_status == 0);
    REQUIRE(out.requests.size() == 5);
    CHECK(out.requests[0].head.method == Method::kGet);
    CHECK(out.requests[0].head.target == "/global/0?wait=1");
    CHECK(out.requests[0].head.authorization == "Bearer abc");
    CHECK(out.requests[0].head.keep_alive);
    CHECK_FALSE(out.requests[0].head.content_length.has_value());
    CHECK(out.requests[1].head.method == Method::kPut);
    CHECK(out.requests[1].head.authorization.empty());
    CHECK(out.requests[1].head.content_length == 5);
    CHECK(out.requests[1].body == "he\0lo"s);
    CHECK(out.requests[2].head.minor_version == 0);
    CHECK_FALSE(out.requests[2].head.keep_alive);
    CHECK(out.requests[2].body.empty());
    CHECK(out.requests[3].head.method == Method::kHead);
    CHECK_FALSE(out.requests[3].head.keep_alive);
    CHECK(out.requests[4].head.method == Method::kOther);
    CHECK(out.requests[4].head.expect_continue);
    CHECK(out.unread.empty());
  }
}

TEST_CASE("HTTP/1.0 with keep-alive goes on") {
  const Outcome out = read_requests("GET /a/b HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", 1000);
  REQUIRE(out.requests.size() == 1);
  CHECK(out.requests[0].head.keep_alive);
}

TEST_CASE("a chunked body is put together, its trailer passed over") {
  const std::string stream =
      "PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n10;name=value\r\n0123456789abcdef\r\n0\r\nAuthorization: Bearer no\r\n\r\n"
      "GET /a/b HTTP/1.1\r\n\r\n";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    CAPTURE(step);
    const Outcome out = read_requests(stream, step);
    REQUIRE(out.requests.size() == 2);
    CHECK(out.requests[0].body == "abc0123456789abcdef");
    CHECK(out.requests[0].head.chunked);
    CHECK(out.requests[0].head.authorization.empty());
    CHECK(out.requests[1].head.method == Method::kGet);
  }
}

TEST_CASE("what is not a request is refused, with the status that fits") {
  const std::string target(5000, 'x');
  CHECK(error_of("\x16\x03\x01\x02hello, this is TLS\r\n\r\n") == 400);
  CHECK(error_of("GET\r\n\r\n") == 400);
  CHECK(error_of("GET /a HTTP/2.0\r\n\r\n") == 505);
  CHECK(error_of("GET /a HTTP/1.1\nHost: a\n\r\n\r\n") == 400);
  CHECK(error_of("GET /a HTTP/1.1\r\nno colon\r\n\r\n") == 400);
  CHECK(error_of("GET /a HTTP/1.1\r\nContent-Length: 1x\r\n\r\n") == 400);
  CHECK(error_of("GET /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n") == 400);
  CHECK(error_of("GET /a HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n") == 400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab") == 400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n") ==
        400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n") == 501);
  CHECK(error_of("PUT /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n") == 501);
  CHECK(error_of("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n") == 501);
  CHECK(error_of("PUT /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") == 400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n") == 400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n") ==
        400);
  CHECK(error_of("GET /a HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n") == 400);
  CHECK(error_of("PUT /a HTTP/1.1\r\nExpect: tea\r\n\r\n") == 417);
  CHECK(error_of("GET /" + target + " HTTP/1.1\r\n\r\n") == 414);
}

TEST_CASE("heads are limited as a whole") {
  const ReadLimits limits{.head_bytes = 256, .target_bytes = 100};
  const std::string start = "GET /a HTTP/1.1\r\n";
  CHECK(error_of(start + "A: " + std::string(300, 'x') + "\r\n\r\n", limits) == 431);
  std::string many = start;
  for (int i = 0; i < 50; ++i) many += "A: 1\r\n";
  CHECK(error_of(many + "\r\n", limits) == 431);
  CHECK(error_of("GET /" + std::string(300, 'x') + " HTTP/1.1\r\n\r\n", limits) == 414);
  CHECK(error_of("GET /" + std::string(120, 'x') + " HTTP/1.1\r\n\r\n", limits) == 414);
  std::string blank;
  for (int i = 0; i < 200; ++i) blank += "\r\n";
  CHECK(error_of(blank, limits) == 400);
  // A chunk's head has no limit of its own; what has to be kept of it while it is not whole has.
  const std::string chunked = start + "Transfer-Encoding: chunked\r\n\r\n1;";
  CHECK(read_requests(chunked + std::string(600, 'x'), 1, 100, limits).error_status == 400);
}

TEST_CASE("a body over the limit is refused, before it is read where the length is known") {
  const std::string head = "PUT /a/b HTTP/1.1\r\nContent-Length: 11\r\n\r\n";
  CHECK(read_requests(head, head.size(), 10).error_status == 413);
  CHECK(read_requests(head + "01234567890", 1, 11).requests.size() == 1);
  const std::string chunks =
      "PUT /a/b HTTP/1.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n6\r\n012345\r\n5\r\n67890\r\n0\r\n\r\n";
  CHECK(read_requests(chunks, 1, 10).error_status == 413);
  CHECK(read_requests(chunks, chunks.size(), 10).error_status == 413);
  CHECK(read_requests(chunks, 1, 11).requests.size() == 1);
  const std::string huge =
      "PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n0123456789ab\r\n";
  CHECK(read_requests(huge, huge.size(), 10).error_status == 413);
}

TEST_CASE("without a decision no body is taken") {
  RequestReader reader;
  std::string_view bytes = "PUT /a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
  REQUIRE(reader.read(bytes) == ReadStep::kHead);
  CHECK(reader.head_done());
  CHECK(bytes == "x");
  CHECK(reader.read(bytes) == ReadStep::kError);
  CHECK(reader.error_status() == 413);
}

TEST_CASE("started distinguishes a stalled request from an idle connection") {
  RequestReader reader;
  std::string_view bytes = "\r\n";
  CHECK(reader.read(bytes) == ReadStep::kNeedMore);
  CHECK_FALSE(reader.started());
  bytes = "G";
  CHECK(reader.read(bytes) == ReadStep::kNeedMore);
  CHECK(reader.started());
  CHECK_FALSE(reader.head_done());
  CHECK(bytes == "G");
}

TEST_CASE("responses are read back as they were written") {
  std::string stream;
  append_continue(stream);
  append_response_head(stream, {.status = 200,
                                .content_length = 3,
                                .minor_version = 1,
                                .keep_alive = true,
                                .server = "hora/1",
                                .date = format_date(784111777),
                                .content_type = "text/plain",
                                .extra = "X-A: b\r\n"});
  stream += "abc";
  CHECK(stream ==
        "HTTP/1.1 100 Continue\r\n\r\n"
        "HTTP/1.1 200 OK\r\nServer: hora/1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        "Content-Type: text/plain\r\nContent-Length: 3\r\nX-A: b\r\n\r\nabc");
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    ResponseReader reader;
    reader.allow_body(100);
    std::string buffer;
    ReadStep last = ReadStep::kNeedMore;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      buffer += stream.substr(at, step);
      std::string_view bytes = buffer;
      last = reader.read(bytes, false);
      while (last == ReadStep::kHead) last = reader.read(bytes, false);
      buffer = std::string(bytes);
    }
    CAPTURE(step);
    REQUIRE(last == ReadStep::kComplete);
    CHECK(reader.head().status == 200);
    CHECK(reader.head().server == "hora/1");
    CHECK(reader.head().keep_alive);
    CHECK(reader.take_body() == "abc");
  }
}

TEST_CASE("a response without a length ends with the stream") {
  ResponseReader reader;
  reader.allow_body(100);
  std::string_view bytes = "HTTP/1.0 200 OK\r\n\r\nabc";
  ReadStep step = ReadStep::kHead;
  while (step == ReadStep::kHead) step = reader.read(bytes, false);
  CHECK(step == ReadStep::kNeedMore);
  CHECK(reader.end_of_stream() == ReadStep::kComplete);
  CHECK(reader.take_body() == "abc");
  CHECK_FALSE(reader.head().keep_alive);
}

TEST_CASE("a response that is cut short is an error") {
  for (const std::string_view cut :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"}) {
    ResponseReader reader;
    reader.allow_body(100);
    std::string_view bytes = cut;
    ReadStep step = ReadStep::kHead;
    while (step == ReadStep::kHead) step = reader.read(bytes, false);
    CHECK(step == ReadStep::kNeedMore);
    CHECK(reader.end_of_stream() == ReadStep::kError);
  }
}

TEST_CASE("the answer to HEAD has a length and no body") {
  ResponseReader reader;
  std::string_view bytes = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
  REQUIRE(reader.read(bytes, true) == ReadStep::kHead);
  CHECK(reader.read(bytes, true) == ReadStep::kComplete);
  CHECK(reader.head().content_length == 3);
}

TEST_CASE("heads say what the client's version does not take for granted") {
  std::string out;
  append_response_head(out, {.status = 404, .minor_version = 0, .keep_alive = false});
  CHECK(out == "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  out.clear();
  append_response_head(out, {.status = 404, .minor_version = 0, .keep_alive = true});
  CHECK(out == "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
  out.clear();
  append_response_head(out, {.status = 404, .minor_version = 1, .keep_alive = false});
  CHECK(out == "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

TEST_CASE("a request head is what a plain server understands") {
  std::string out;
  append_request_head(out, {.method = Method::kPut,
                            .target = "/global/0",
                            .host = "10.0.0.1:80",
                            .bearer_token = "t",
                            .content_length = 7});
  CHECK(out ==
        "PUT /global/0 HTTP/1.1\r\nHost: 10.0.0.1:80\r\nAuthorization: Bearer t\r\n"
        "Content-Length: 7\r\n\r\n");
}

TEST_CASE("percent coding goes both ways") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string coded = percent_encode(all);
  CHECK(coded.find_first_of("/?# %\r\n"s.substr(0, 4)) == std::string::npos);
  CHECK(percent_decode(coded) == all);
  CHECK(percent_encode("local_node-1.example:8") == "local_node-1.example:8");
  CHECK(percent_encode("a/b c") == "a%2fb%20c");
  CHECK_FALSE(percent_decode("%").has_value());
  CHECK_FALSE(percent_decode("%2").has_value());
  CHECK_FALSE(percent_decode("%zz").has_value());
}
