// SPDX-License-Identifier: Apache-2.0
// Any bytes, quoted for a shell and read back by the rules that the shells share, are the same
// bytes; nothing that follows the word is swallowed by it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/transports/remote_command.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// The first word of `text` as a shell reads it: bare characters, '...', and \x outside of quotes.
// Single quotes may hold nothing that csh or fish would interpret.
std::string read_word(std::string_view text, std::size_t& end) {
  std::string word;
  bool open = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (open) {
      if (c == '\'') {
        open = false;
      } else {
        require(c != '\\' && c != '!');
        word += c;
      }
    } else if (c == '\'') {
      open = true;
    } else if (c == '\\') {
      require(++i < text.size());
      word += text[i];
    } else if (c == ' ') {
      break;
    } else {
      word += c;
    }
  }
  require(!open);
  end = i;
  return word;
}

void check(const hora::Result<std::string>& quoted, std::string_view word) {
  if (!quoted) return;
  std::size_t end = 0;
  require(read_word(*quoted + " next", end) == word);
  require(end == quoted->size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string word(reinterpret_cast<const char*>(data), size);
  const bool has_nul = word.find('\0') != std::string::npos;
  const auto any = hora::launcher::quote_for_any_shell(word);
  require(any.has_value() == (!has_nul && word.find_first_of("\r\n") == std::string::npos));
  check(any, word);
  return 0;
}
