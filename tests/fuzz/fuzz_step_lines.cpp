// SPDX-License-Identifier: Apache-2.0
// A line on the standard output of an engine's step, which a host may have written: it names a step
// that is one word and not an option, or a failure in visible words, or is not one of ours.
// Whatever the words of a failure of ours, it is one line, and read as that failure.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/dial/dial_protocol.h"
#include "rendezvous/base/text.h"

using namespace hora::launcher;

namespace {

constexpr std::string_view kNonce = "0123abcd";

void check(std::string_view line) {
  const auto meant = parse_step_line(kNonce, line);
  if (!meant) return;
  if (const auto* need = std::get_if<StepNeed>(&*meant)) {
    if (need->step.empty() || need->step.front() == '-') std::abort();
    if (need->step.find_first_of(" \n\t,;$`'\"\\/") != std::string::npos) std::abort();
    return;
  }
  const auto& failure = std::get<StepFailure>(*meant);
  if (failure.why != hora::visible_line(failure.why)) std::abort();
  if (failure.host.find(' ') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  const std::string mark = "HORA-" + std::string(kNonce);
  check(mark + " need " + std::string(text));
  check(mark + " failed " + std::string(text));
  const std::string line = step_failure(kNonce, "node1", text);
  if (line.find('\n') != line.size() - 1) std::abort();
  const auto meant = parse_step_line(kNonce, line);
  const auto* failure = meant ? std::get_if<StepFailure>(&*meant) : nullptr;
  if (failure == nullptr || failure->host != "node1") std::abort();
  return 0;
}
