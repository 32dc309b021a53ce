// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/constant_name.h"

namespace hora::launcher {

std::string constant_name(std::string_view text) {
  std::string out(text);
  // Not toupper(), which goes by the locale: these names are the same everywhere.
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (c == '-') c = '_';
  }
  return out;
}

}  // namespace hora::launcher
