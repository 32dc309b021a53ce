// SPDX-License-Identifier: Apache-2.0
// Any text as ~/.ssh/config: no crash, no endless Include, and reading it twice changes nothing but
// the list of identity files.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "launcher/transports/ssh_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hora::launcher;
  const std::string text(reinterpret_cast<const char*>(data), size);
  int included = 0;
  const SshConfigIncluder include = [&](const std::string& pattern) {
    return ++included < 8 ? std::vector<std::string>{"User " + pattern + "\n", text.substr(0, 64)}
                          : std::vector<std::string>{};
  };
  const SshConfigQuery query{"gpu1", "", "local"};
  SshConfig once;
  read_ssh_config(text, query, include, once);
  SshConfig twice = once;
  included = 8;
  read_ssh_config(text, query, include, twice);
  twice.identity_files = once.identity_files;
  // A Match block may see values that the first reading found; only then may something be added.
  if (text.find("atch") == std::string::npos && text.find("ATCH") == std::string::npos &&
      text.find("nclude") == std::string::npos && text.find("NCLUDE") == std::string::npos) {
    if (!(once == twice)) std::abort();
  }
  SshTokens tokens;
  tokens.home = "/home/me";
  (void)expand_tokens(text, tokens);
  return 0;
}
