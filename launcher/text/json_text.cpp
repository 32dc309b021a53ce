// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/json_text.h"

#include "rendezvous/base/text.h"

namespace hora::launcher {

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : visible_line(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace hora::launcher
