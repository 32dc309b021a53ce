// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/result.h"

#include <system_error>

namespace hora {

Error Error::with_context(std::string_view context) && {
  // Context goes in front, so the outermost layer is read first.
  message.insert(0, std::string(context) + ": ");
  return std::move(*this);
}

Error Error::with_context(std::string_view context) const& {
  Error copy = *this;
  return std::move(copy).with_context(context);
}

Error make_error(ErrorCode code, std::string message) { return {code, std::move(message), 0}; }

// One table for the whole program, so that equal failures have equal codes everywhere.
Error errno_error(int errnum, std::string_view what) {
  // Codes for conditions that may pass become kUnavailable, which callers retry.
  ErrorCode code = ErrorCode::kFailed;
  switch (errnum) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
      code = ErrorCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = ErrorCode::kDenied;
      break;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    // Descriptors and memory may be free again later.
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENETUNREACH:
    case EHOSTUNREACH:
      code = ErrorCode::kUnavailable;
      break;
    case ETIMEDOUT:
      code = ErrorCode::kTimedOut;
      break;
    case EINTR:
    case ECANCELED:
      code = ErrorCode::kInterrupted;
      break;
    default:
      break;
  }
  // generic_category() is thread-safe, unlike strerror().
  return {code, std::string(what) + ": " + std::generic_category().message(errnum), errnum};
}

}  // namespace hora
