// HTTP/1.x from bytes: a request reader for servers, a response reader for clients. They own no
// socket: bytes go in, messages come out. Boost.Beast's parser does the parsing; only reader.cpp
// knows it.  [pure]
//
//   while (!bytes.empty()) {
//     switch (reader.read(bytes)) {             // takes what it used off the front of `bytes`
//       case kHead: decide by reader.head(), set a body limit, or refuse
//       case kComplete: use reader.head() and reader.take_body(); reader.reset()
//       case kNeedMore: keep `bytes`, add what arrives next behind it, read again
//       case kError: answer reader.error_status() and close
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/http/message.h"

namespace hora::http {

// What a message may take. A head counts request line and header fields as sent.
struct ReadLimits {
  std::size_t head_bytes = 8 * 1024;
  std::size_t target_bytes = 4 * 1024;
};

enum class ReadStep {
  kNeedMore,  // not decidable without further bytes
  kHead,      // head() is valid, once per message, before any of the body was taken
  kComplete,  // the body too: reset() before the next read()
  kError,     // not HTTP, or over a limit; the connection is beyond repair
};

class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits = {});
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;

  // The unused rest stays in `bytes`; it is never more than the head limit plus one chunk header
  // when the answer is kNeedMore. Bytes behind a complete message are left alone.
  ReadStep read(std::string_view& bytes);

  const RequestHead& head() const;
  // After kHead, and before the next read(): a longer body is kError with status 413. A fresh
  // reader allows none, so that a server has to think about it.
  void allow_body(std::uint64_t limit_bytes);
  std::size_t body_size() const;  // received so far
  std::string take_body();        // after kComplete

  // Whether any byte of the current message was seen: tells a connection that idles from one that
  // stalls.
  bool started() const;
  bool head_done() const;

  int error_status() const;             // 400, 413, 414, 431, 501, 505
  std::string_view error_text() const;  // for a log line

  // Ready for the next message; memory is kept.
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseReader {
 public:
  explicit ResponseReader(const ReadLimits& limits = {});
  ~ResponseReader();
  ResponseReader(ResponseReader&&) noexcept;
  ResponseReader& operator=(ResponseReader&&) noexcept;

  // `head_only` for the answer to a HEAD request, which has no body whatever its fields say.
  // 1xx answers are skipped.
  ReadStep read(std::string_view& bytes, bool head_only);
  // The stream ended: completes a body that has no length of its own, else kError.
  ReadStep end_of_stream();

  const ResponseHead& head() const;
  void allow_body(std::uint64_t limit_bytes);
  std::string take_body();
  bool started() const;
  std::string_view error_text() const;
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hora::http
