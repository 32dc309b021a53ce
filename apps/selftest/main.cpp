// SPDX-License-Identifier: Apache-2.0
// hora-doctor starts hora-selftest to load a library of another vendor and to do a tiny operation
// with it. It may crash or hang; hora-doctor waits for a limited time and reports what happened.
//
//   hora-selftest library               libhora, in the world that the environment describes
//   hora-selftest backend ID [FILE]     one backend alone; FILE: the vendor's library to take
//   hora-selftest driver                the libraries of the NVIDIA driver
//   hora-selftest nccl FILE             the version of a copy of NCCL
//
// On stdout, one JSON object a line: {"stage"} before each stage, then {"result"}.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "apps/selftest/selftest.h"

namespace {

using hora::selftest::Json;

// Libraries may print to stdout. Their output goes to stderr, and the answers have a descriptor of
// their own.
int take_stdout() {
  const int answers = ::fcntl(1, F_DUPFD_CLOEXEC, 3);
  ::dup2(2, 1);
  return answers;
}

void send_value(int answers, const char* name, Json value) {
  Json line;
  line[name] = std::move(value);
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  // An unbuffered write, so that the stage is out before the library can crash.
  static_cast<void>(!::write(answers, text.data(), text.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const std::string first = argc > 2 ? argv[2] : "";
  const std::string second = argc > 3 ? argv[3] : "";
  const int answers = take_stdout();
  const auto at = [answers](const char* stage) { send_value(answers, "stage", stage); };
  Json result;
  if (what == "library") {
    result = hora::selftest::test_library(at);
  } else if (what == "backend") {
    result = hora::selftest::test_backend(first, second, at);
  } else if (what == "driver") {
    result = hora::selftest::test_driver(at);
  } else if (what == "nccl") {
    result = hora::selftest::test_nccl_copy(first, at);
  } else {
    std::fputs("hora-selftest is started by hora-doctor\n", stderr);
    return 2;
  }
  const bool failed = result.contains("error");
  send_value(answers, "result", std::move(result));
  // The destructors of libraries run after this stage.
  at("end");
  return failed ? 1 : 0;
}
