// SPDX-License-Identifier: Apache-2.0
// Errors as values. A function that can fail returns a Result<T>; its Error says what the caller
// may do about it (the code), what happened (the message) and, added layer by layer on the way up,
// where (the context). If a system call failed, the Error has its errno, so the message need not be
// searched for it. The member names follow std::expected, which g++ 12 does not have under C++20.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace hora {

// Named after what the caller may do, not after the origin of the failure.
enum class ErrorCode {
  kUsage,        // the request itself is wrong: report it to the user, do not retry
  kUnavailable,  // not now: a retry may succeed
  kTimedOut,     // a deadline passed; the message says what was waited for
  kDenied,       // permission, authentication, host key
  kNotFound,     // a file, host, program or key does not exist
  kFailed,       // anything else; a retry will not help
  kInterrupted,  // a signal or shutdown ended the wait
};

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
  int errnum = 0;  // of the system call that failed; 0: it was none

  // Prefixes `context` to the message: "host b: starting the agent: connection refused".
  Error with_context(std::string_view context) &&;
  Error with_context(std::string_view context) const&;

  friend bool operator==(const Error&, const Error&) = default;
};

Error make_error(ErrorCode code, std::string message);
// The only place where errno becomes an Error. `what` names the action: "opening /etc/x".
Error errno_error(int errnum, std::string_view what);

struct Ok {
  friend bool operator==(const Ok&, const Ok&) = default;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Ok>;

// Returns from the enclosing function with the error of `expression`, if it has one.
#define HORA_TRY(expression)                                     \
  do {                                                           \
    if (auto hora_try_result = (expression); !hora_try_result) { \
      return std::move(hora_try_result).error();                 \
    }                                                            \
  } while (false)

}  // namespace hora
