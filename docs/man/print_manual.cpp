// SPDX-License-Identifier: Apache-2.0
// Prints the manual page, with --options the option tables of docs/reference/cli.md, or with
// --completion SHELL a completion script: what the build installs without running horarun, which
// may be for another processor. All come from the table that parses the command line.
#include <cstdio>
#include <string>
#include <string_view>

#include "launcher/options/completion.h"
#include "launcher/options/usage_text.h"

int main(int argc, char** argv) {
  using namespace hora::launcher;
  const std::string_view what = argc > 1 ? argv[1] : "";
  std::string text;
  if (what == "--completion") {
    auto script = completion_script(argc > 2 ? argv[2] : "");
    if (!script) return 2;
    text = *std::move(script);
  } else {
    text = what == "--options" ? option_reference() : manual_page(HORA_VERSION);
  }
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
