// SPDX-License-Identifier: Apache-2.0
// HTTP/1.x from bytes: a request reader for servers, a response reader for clients. They own no
// socket: bytes go in, messages come out. Boost.Beast's parser does the parsing; only reader.cpp
// uses it.  [pure]
//
//   while (!bytes.empty()) {
//     switch (reader.read(bytes)) {  // removes the bytes that it has used from the front
//       case kHead: decide by reader.head(), set a body limit, or refuse
//       case kComplete: use reader.head() and reader.take_body(); reader.reset()
//       case kNeedMore: keep `bytes`, append what arrives next, read again
//       case kError: answer reader.error_status() and close
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/http/message.h"

namespace hora::http {

// Size limits of a message. A head counts request line and header fields as sent.
struct ReadLimits {
  std::size_t head_bytes = 8 * 1024;
  std::size_t target_bytes = 4 * 1024;
};

enum class ReadStep {
  kNeedMore,  // the decision needs more bytes
  kHead,      // head() is valid; once per message, before it takes any of the body
  kComplete,  // the body is complete, too: call reset() before the next read()
  kError,     // not HTTP, or over a limit; close the connection
};

class RequestReader {
 public:
  explicit RequestReader(const ReadLimits& limits = {});
  ~RequestReader();

  // The unused rest stays in `bytes`; with kNeedMore it is never more than the head limit plus one
  // chunk header. Bytes after a complete message stay untouched.
  ReadStep read(std::string_view& bytes);

  const RequestHead& head() const;
  // Call this after kHead and before the next read(): a longer body is kError with status 413. A
  // fresh reader allows no body, so every server has to decide.
  void allow_body(std::uint64_t limit_bytes);
  std::size_t body_size() const;  // received so far
  std::string take_body();        // after kComplete

  // Whether any byte of the current message has arrived: distinguishes an idle connection from a
  // stalled one.
  bool started() const;
  bool head_done() const;

  int error_status() const;  // 400, 413, 414, 431, 501, 505

  // Prepares for the next message; keeps the memory.
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseReader {
 public:
  explicit ResponseReader(const ReadLimits& limits = {});
  ~ResponseReader();

  // `head_only`: the response answers a HEAD request, so it has no body whatever its fields say.
  // Skips 1xx responses.
  ReadStep read(std::string_view& bytes, bool head_only);
  // Reports the end of the stream: completes a body that has no length of its own, otherwise
  // kError.
  ReadStep end_of_stream();

  const ResponseHead& head() const;
  void allow_body(std::uint64_t limit_bytes);
  std::string take_body();
  std::string_view error_text() const;
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hora::http
