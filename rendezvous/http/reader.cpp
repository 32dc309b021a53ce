// SPDX-License-Identifier: Apache-2.0
// Beast parses and this file decides: it enforces the limits (Beast's count differently), rejects
// what could be read in two ways (request smuggling), and copies what matters into plain values.
#include "rendezvous/http/reader.h"

#include <limits>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include "rendezvous/base/text.h"

namespace hora::http {

namespace {

namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using beast::error_code;
using bhttp::error;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// What both directions have in common. Beast calls back for each part of a message; the callbacks
// copy what matters at once, since Beast's views end with the call.
template <bool isRequest>
class Parser : public bhttp::basic_parser<isRequest> {
 public:
  explicit Parser(const ReadLimits& limits) : limits_(limits) {
    this->header_limit(static_cast<std::uint32_t>(limits.head_bytes));
    // allow_body() sets the limit: Beast's own cannot change once the head is known.
    this->body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  // Consumes `bytes` until the message reaches its next step.
  ReadStep advance(std::string_view& bytes, std::string& body, std::uint64_t body_limit) {
    body_ = &body;
    body_limit_ = body_limit;
    for (;;) {
      if (this->is_done()) return ReadStep::kComplete;
      // Before the body is read, so that a refused body costs nothing.
      if (this->is_header_done() && too_long()) return fail(413, "body over the limit");
      if (bytes.size() < least_bytes()) return ReadStep::kNeedMore;
      const bool had_head = this->is_header_done();
      error_code ec;
      const std::size_t used = this->put({bytes.data(), bytes.size()}, ec);
      bytes.remove_prefix(used);
      if (!had_head) {
        // Beast restarts its count for each piece of a head; this counts the whole head.
        head_bytes_ += used;
        if (head_bytes_ > limits_.head_bytes) return fail(431, "head over the limit");
      }
      // Beast wants more; the rest in `bytes` stays with the caller until then.
      if (ec == error::need_more) {
        // Beast has no limit for the head of a chunk.
        if (bytes.size() > limits_.head_bytes) return fail(400, "a line over the limit");
        return ReadStep::kNeedMore;
      }
      if (ec == error::header_limit) {
        // Without the end of the first line, the target is what is too long.
        const bool in_target =
            !start_line_seen_ && bytes.substr(0, limits_.head_bytes).find("\r\n") == bytes.npos;
        return fail(in_target ? 414 : 431, "head over the limit");
      }
      if (ec == error::bad_version &&
          bytes.substr(0, bytes.find("\r\n")).find('\n') != bytes.npos) {
        return fail(400, "a line that ends in LF without CR");  // and not a version of HTTP
      }
      if (ec) return fail(status_for(ec), text_for(ec));
      if (!had_head && this->is_header_done()) return ReadStep::kHead;
    }
  }

  ReadStep fail(int status, std::string_view text) {
    // Every text is a string literal, so the view stays valid.
    error_status = status;
    error_text = text;
    return ReadStep::kError;
  }

  // Counts bytes in front of the message that the caller has skipped.
  void count_skipped(std::size_t count) { head_bytes_ += count; }
  std::size_t head_bytes() const { return head_bytes_; }

  int error_status = 0;
  std::string_view error_text;

 protected:
  // Refuses the message from inside a callback, with a status of this reader's choice.
  void refuse(int status, std::string_view text, error_code& ec) {
    refused_status_ = status;
    refused_text_ = text;
    ec = error::bad_field;
  }

  bool start_line_seen_ = false;
  ReadLimits limits_;

 private:
  // An incomplete chunked body needs at least "0\r\n\r\n" more; Beast 1.74 asserts this when it
  // looks at a last chunk for the second time.
  std::size_t least_bytes() const { return this->is_header_done() && this->chunked() ? 5 : 1; }

  bool too_long() const {
    const auto length = this->content_length();
    return (length && *length > body_limit_) || overflow_;
  }

  // A refusal of a callback first, then the limits, then Beast's own reasons.
  int status_for(const error_code& ec) const {
    if (refused_status_ != 0) return refused_status_;
    if (overflow_ || ec == error::body_limit) return 413;
    if (ec == error::bad_version) return 505;
    return 400;
  }

  std::string_view text_for(const error_code& ec) const {
    if (refused_status_ != 0) return refused_text_;
    if (overflow_) return "body over the limit";
    if (ec == error::bad_version) return "not HTTP/1.0 or HTTP/1.1";
    if (ec == error::bad_content_length) return "malformed Content-Length";
    if (ec == error::bad_transfer_encoding) return "malformed Transfer-Encoding";
    return "malformed message";
  }

  // Called for every part of a body, chunked or not.
  std::size_t append(beast::string_view part, error_code& ec) {
    // Chunks announce no total, so the limit is checked as they arrive; the subtraction cannot
    // wrap.
    if (part.size() > body_limit_ - body_->size()) {
      overflow_ = true;
      ec = error::body_limit;
      return 0;
    }
    body_->append(part.data(), part.size());
    ec = {};
    return part.size();
  }

  // Beast calls this between head and body.
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code& ec) override {
    // too_long() has accepted the length: it is within what the caller agreed to hold.
    if (length) body_->reserve(static_cast<std::size_t>(*length));
    ec = {};
  }
  std::size_t on_body_impl(beast::string_view part, error_code& ec) override {
    return append(part, ec);
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code& ec) override { ec = {}; }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view part, error_code& ec) override {
    return append(part, ec);
  }
  void on_header_impl(error_code& ec) override { ec = {}; }
  void on_finish_impl(error_code& ec) override { ec = {}; }

  std::string* body_ = nullptr;
  std::uint64_t body_limit_ = 0;
  bool overflow_ = false;
  std::size_t head_bytes_ = 0;
  int refused_status_ = 0;
  std::string_view refused_text_;
};

Method to_method(bhttp::verb verb) {
  switch (verb) {
    case bhttp::verb::get:
      return Method::kGet;
    case bhttp::verb::head:
      return Method::kHead;
    case bhttp::verb::put:
      return Method::kPut;
    case bhttp::verb::delete_:
      return Method::kDelete;
    default:
      return Method::kOther;
  }
}

// Copies the fields that a server needs; the caller's head is reused from message to message.
class RequestParser final : public Parser<true> {
 public:
  RequestParser(const ReadLimits& limits, RequestHead& head) : Parser(limits), head_(head) {
    head_.target.clear();
    head_.authorization.clear();
    head_.expect_continue = false;
  }

  // Beast knows these only when the whole head is parsed, since fields may contradict each other.
  void finish_head() {
    head_.keep_alive = keep_alive();
    head_.chunked = chunked();
    const auto length = content_length();
    head_.content_length = length ? std::optional<std::uint64_t>(*length) : std::nullopt;
  }

 private:
  void on_request_impl(bhttp::verb verb, beast::string_view, beast::string_view target, int version,
                       error_code& ec) override {
    start_line_seen_ = true;
    ec = {};
    // The head's limit is larger, so a long target needs its own check.
    if (target.size() > limits_.target_bytes) return refuse(414, "target over the limit", ec);
    // A copy: the view ends with this callback.
    head_.method = to_method(verb);
    head_.target.assign(target.data(), target.size());
    head_.minor_version = version % 10;
  }

  void on_response_impl(int, beast::string_view, int, error_code& ec) override { ec = {}; }

  void on_field_impl(bhttp::field field, beast::string_view, beast::string_view value,
                     error_code& ec) override {
    ec = {};
    if (is_header_done()) return;  // trailers of a chunked body have no meaning here
    switch (field) {
      case bhttp::field::authorization:
        // Two credentials would leave open which of them counts.
        if (!head_.authorization.empty()) return refuse(400, "Authorization twice", ec);
        head_.authorization.assign(value.data(), value.size());
        return;
      case bhttp::field::expect:
        if (!equals_ignoring_case(view(value), "100-continue")) {
          return refuse(417, "an expectation other than 100-continue", ec);
        }
        head_.expect_continue = true;
        return;
      case bhttp::field::transfer_encoding:
        // Any coding but a single "chunked" would leave the end of the body open to interpretation.
        if (head_.minor_version == 0) return refuse(400, "Transfer-Encoding in HTTP/1.0", ec);
        if (!equals_ignoring_case(view(value), "chunked")) {
          return refuse(501, "a transfer coding other than chunked", ec);
        }
        return;
      default:
        return;
    }
  }

  RequestHead& head_;
};

// Copies the fields that a client needs: status, length and the Server field.
class ResponseParser final : public Parser<false> {
 public:
  ResponseParser(const ReadLimits& limits, ResponseHead& head) : Parser(limits), head_(head) {
    head_.server.clear();
  }

  void finish_head() {
    head_.keep_alive = keep_alive();
    const auto length = content_length();
    head_.content_length = length ? std::optional<std::uint64_t>(*length) : std::nullopt;
  }

 private:
  void on_request_impl(bhttp::verb, beast::string_view, beast::string_view, int,
                       error_code& ec) override {
    ec = {};
  }

  void on_response_impl(int status, beast::string_view, int version, error_code& ec) override {
    start_line_seen_ = true;
    head_.status = status;
    head_.minor_version = version % 10;
    ec = {};
  }

  void on_field_impl(bhttp::field field, beast::string_view, beast::string_view value,
                     error_code& ec) override {
    ec = {};
    if (field == bhttp::field::server && !is_header_done()) {
      head_.server.assign(value.data(), value.size());
    }
  }

  ResponseHead& head_;
};

}  // namespace

// Keeps Beast out of the header. `head` and `body` live here, and the parser refers to them.
class RequestReader::Impl {
 public:
  explicit Impl(const ReadLimits& limits) : limits(limits) { parser.emplace(limits, head); }

  ReadLimits limits;
  RequestHead head;
  std::string body;
  std::uint64_t body_limit = 0;
  bool started = false;
  std::optional<RequestParser> parser;
};

RequestReader::RequestReader(const ReadLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestReader::~RequestReader() = default;

// The caller decides between steps, so each call goes no further than to the next one.
ReadStep RequestReader::read(std::string_view& bytes) {
  Impl& self = *impl_;
  if (!self.started) {
    // Some clients send an empty line after a body (RFC 7230, 3.5).
    while (bytes.substr(0, 2) == "\r\n") {
      bytes.remove_prefix(2);
      self.parser->count_skipped(2);
      if (self.parser->head_bytes() > self.limits.head_bytes) {
        return self.parser->fail(400, "only empty lines");
      }
    }
    // A lone CR may be half of such an empty line.
    if (bytes.empty() || bytes == "\r") return ReadStep::kNeedMore;
    self.started = true;
  }
  const ReadStep step = self.parser->advance(bytes, self.body, self.body_limit);
  if (step == ReadStep::kHead) self.parser->finish_head();
  return step;
}

const RequestHead& RequestReader::head() const { return impl_->head; }
void RequestReader::allow_body(std::uint64_t limit_bytes) { impl_->body_limit = limit_bytes; }
std::size_t RequestReader::body_size() const { return impl_->body.size(); }
std::string RequestReader::take_body() { return std::exchange(impl_->body, {}); }
bool RequestReader::started() const { return impl_->started; }
bool RequestReader::head_done() const { return impl_->parser->is_header_done(); }
int RequestReader::error_status() const { return impl_->parser->error_status; }

void RequestReader::reset() {
  Impl& self = *impl_;
  // Beast's parsers cannot be reset, only recreated; the strings keep their memory.
  self.parser.emplace(self.limits, self.head);
  self.body.clear();
  self.body_limit = 0;
  self.started = false;
}

class ResponseReader::Impl {
 public:
  explicit Impl(const ReadLimits& limits) : limits(limits) { parser.emplace(limits, head); }

  ReadLimits limits;
  ResponseHead head;
  std::string body;
  std::uint64_t body_limit = 0;
  bool started = false;
  std::optional<ResponseParser> parser;
};

ResponseReader::ResponseReader(const ReadLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
ResponseReader::~ResponseReader() = default;

ReadStep ResponseReader::read(std::string_view& bytes, bool head_only) {
  Impl& self = *impl_;
  for (;;) {
    if (bytes.empty() && !self.started) return ReadStep::kNeedMore;
    if (!self.started) {
      // Beast has to know before the head that no body follows.
      self.parser->skip(head_only);
      self.started = true;
    }
    const ReadStep step = self.parser->advance(bytes, self.body, self.body_limit);
    if (step == ReadStep::kHead) self.parser->finish_head();
    // An interim response (100 Continue) precedes the real one on the same connection.
    const bool interim = self.head.status >= 100 && self.head.status < 200;
    if (interim && step == ReadStep::kHead) continue;
    if (interim && step == ReadStep::kComplete) {
      reset();
      continue;
    }
    return step;
  }
}

ReadStep ResponseReader::end_of_stream() {
  Impl& self = *impl_;
  // Status 0: nothing is sent back for a response.
  if (!self.started) return self.parser->fail(0, "the connection ended");
  if (self.parser->is_done()) return ReadStep::kComplete;
  // Only a body without a length may end with the connection.
  if (!self.parser->is_header_done() || !self.parser->need_eof()) {
    return self.parser->fail(0, "the connection ended inside a message");
  }
  error_code ec;
  self.parser->put_eof(ec);
  return ec ? self.parser->fail(0, "malformed message") : ReadStep::kComplete;
}

const ResponseHead& ResponseReader::head() const { return impl_->head; }
void ResponseReader::allow_body(std::uint64_t limit_bytes) { impl_->body_limit = limit_bytes; }
std::string ResponseReader::take_body() { return std::exchange(impl_->body, {}); }
std::string_view ResponseReader::error_text() const { return impl_->parser->error_text; }

void ResponseReader::reset() {
  Impl& self = *impl_;
  // A client's limit is the same for every response, unlike a server's.
  const std::uint64_t limit = self.body_limit;
  self.parser.emplace(self.limits, self.head);
  // Otherwise read() would take the next response for an interim one as well.
  self.head.status = 0;
  self.body.clear();
  self.body_limit = limit;
  self.started = false;
}

}  // namespace hora::http
