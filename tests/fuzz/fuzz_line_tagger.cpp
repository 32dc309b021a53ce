// SPDX-License-Identifier: Apache-2.0
// A rank's output, cut in two places: every byte comes out once, in order, after the same prefixes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/output/line_tagger.h"

using namespace hora::launcher;

namespace {

std::string tag(std::string_view text, std::size_t first, std::size_t second,
                std::string_view prefix) {
  LineTagger tagger;
  std::string out;
  tagger.feed(text.substr(0, first), prefix, out);
  tagger.feed(text.substr(first, second - first), prefix, out);
  tagger.feed(text.substr(second), prefix, out);
  const bool unterminated = tagger.finish(prefix, out);
  if (unterminated != (!text.empty() && text.back() != '\n')) std::abort();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t first = data[0] * text.size() / 255;
  const std::size_t second = first + data[1] * (text.size() - first) / 255;
  if (tag(text, first, second, "") != text) std::abort();
  constexpr std::string_view kPrefix = "[1]<stdout>:";
  if (tag(text, first, second, kPrefix) != tag(text, text.size(), text.size(), kPrefix)) {
    std::abort();
  }
  return 0;
}
