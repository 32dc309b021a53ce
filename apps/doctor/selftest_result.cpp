// SPDX-License-Identifier: Apache-2.0
// Interprets the output of hora-selftest. The last stage shows what the library was doing when it
// crashed or hung.
#include "selftest_result.h"

#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::doctor {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kMostWords = 300;

std::string last_line(const std::string& text) {
  const std::string_view all = trim(text);
  const std::size_t feed = all.rfind('\n');
  return std::string(trim(all.substr(feed == all.npos ? 0 : feed)).substr(0, kMostWords));
}

// Returns an empty text if the process ended as it should.
std::string how_it_ended(const Answer& answer, bool answered, Milliseconds timeout) {
  if (answer.timed_out) {
    return "it did not end within " + std::to_string(timeout.count() / 1000) + " s";
  }
  if (answer.signal != 0) return "it was ended by " + launcher::signal_name(answer.signal);
  if (answered) return {};
  if (answer.exit_code == -1) return "it could not be started";
  const std::string words = last_line(answer.errors);
  return "it ended with code " + std::to_string(answer.exit_code) +
         (words.empty() ? "" : ": " + words);
}

}  // namespace

Json selftest_result(const Answer& answer, Milliseconds timeout) {
  std::string stage;
  Json result;
  for (const std::string_view text : split(answer.output, '\n')) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    // Only the end follows the result, and it matters only if it does not come.
    if (line.contains("stage") && line["stage"].is_string() && !result.contains("error")) {
      stage = line["stage"].get<std::string>();
    }
    if (line.contains("result") && line["result"].is_object()) result = line["result"];
  }
  const std::string ended = how_it_ended(answer, result.is_object(), timeout);
  if (!result.is_object()) result = Json::object();
  // An error of its own says more than the way it ended.
  if (!ended.empty() && !result.contains("error")) result["error"] = ended;
  if (result.contains("error")) result["stage"] = stage;
  return result;
}

}  // namespace hora::doctor
