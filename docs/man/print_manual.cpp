// SPDX-License-Identifier: Apache-2.0
// Prints the manual page, or with --options the option tables of docs/reference/cli.md; both come
// from the table that the command line itself is parsed with.
#include <cstdio>
#include <string_view>

#include "launcher/options/usage_text.h"

int main(int argc, char** argv) {
  using namespace hora::launcher;
  const bool options = argc > 1 && std::string_view(argv[1]) == "--options";
  std::fputs((options ? option_reference() : manual_page(HORA_VERSION)).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
