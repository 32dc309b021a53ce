// SPDX-License-Identifier: Apache-2.0
// A manifest is made as JSON, which is valid YAML; people read it before they let it into a
// cluster, so it is printed as they would write it, with the script in lines instead of one long
// string.
#include "launcher/pods/yaml_text.h"

#include <algorithm>
#include <string_view>

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

// Words such as "true" or "1e3" would not be read as strings. A word of letters that begins with a
// capital, or holds a blank or a slash, is none of them; everything else is put in quotes.
bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_fine = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '/' || c == '.';
  };
  if (!is_letter(text.front()) || !std::all_of(text.begin(), text.end(), is_fine)) return false;
  for (const std::string_view word :
       {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}) {
    if (text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(),
                                                 [](char a, char b) { return (a | 0x20) == b; })) {
      return false;
    }
  }
  return true;
}

void write(std::string& out, const Json& value, std::size_t indent);

// JSON's quotes and escapes are YAML's, too.
std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>())) return value;
  return value.dump();
}

// Lines as they are, which is what makes a script readable.
void write_block(std::string& out, std::string_view text, std::size_t indent) {
  out += "|\n";
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    out += std::string(indent, ' ') + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

bool is_block(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().ends_with('\n');
}

// Behind "key:" or "-".
void write_value(std::string& out, const Json& value, std::size_t indent, bool in_list) {
  if (is_block(value)) {
    out += " ";
    return write_block(out, value.get_ref<const std::string&>(), indent);
  }
  if (!value.is_structured() || value.empty()) {
    out += " " + scalar(value) + "\n";
    return;
  }
  if (!in_list) {
    out += "\n";
    return write(out, value, indent);
  }
  // The first line of the value stands behind the dash.
  std::string nested;
  write(nested, value, indent);
  out += " " + nested.substr(indent);
}

// Keys and dashes stand `indent` blanks in; what belongs to them, two more.
void write(std::string& out, const Json& value, std::size_t indent) {
  const std::string blanks(indent, ' ');
  for (const auto& [key, each] : value.items()) {
    out += blanks + (value.is_array() ? "-" : (is_plain(key) ? key : Json(key).dump()) + ":");
    write_value(out, each, indent + 2, value.is_array());
  }
}

}  // namespace

std::string yaml_text(const Json& value) {
  std::string out;
  write(out, value, 0);
  return out;
}

}  // namespace hora::launcher
