// SPDX-License-Identifier: Apache-2.0
// The cleaning is one of texts, not of a grammar: logs, JSON, shell commands and tracebacks come
// mixed. Nothing can be sure to find every secret, so in doubt it blanks: a lost word costs little,
// a published key does not.
#include "launcher/report/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kBlank = "***";
constexpr std::size_t kLeastValue = 6;  // shorter ones are words of every text
constexpr std::size_t kLeastKey = 12;   // after a vendor's prefix

constexpr std::array kSecretWords = {
    std::string_view("token"),         std::string_view("passwd"),
    std::string_view("password"),      std::string_view("passphrase"),
    std::string_view("secret"),        std::string_view("api-key"),
    std::string_view("api_key"),       std::string_view("apikey"),
    std::string_view("access_key"),    std::string_view("access-key"),
    std::string_view("private_key"),   std::string_view("private-key"),
    std::string_view("credential"),    std::string_view("cookie"),
    std::string_view("authorization"), std::string_view("hora_run_key")};
constexpr std::array kMakers = {
    std::string_view("ghp_"),        std::string_view("gho_"),   std::string_view("ghs_"),
    std::string_view("github_pat_"), std::string_view("glpat-"), std::string_view("hf_"),
    std::string_view("sk-"),         std::string_view("xoxb-"),  std::string_view("xoxp-"),
    std::string_view("AKIA"),        std::string_view("ASIA"),   std::string_view("AIza"),
    std::string_view("eyJ")};

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool ends_value(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\'' || c == ',' || c == ';' ||
         c == ')' || c == '}' || c == ']' || c == '&' || c == '<';
}

std::size_t value_end(const std::string& text, std::size_t at) {
  while (at < text.size() && !ends_value(text[at])) ++at;
  return at;
}

// From BEGIN to END, or to the end of the text, as a tail may have been cut.
void clean_pem(std::string& text) {
  constexpr std::string_view kBegin = "PRIVATE KEY-----";
  for (std::size_t at = text.find(kBegin); at != std::string::npos;
       at = text.find(kBegin, at + 1)) {
    const std::size_t body = at + kBegin.size();
    const std::size_t end = text.find("-----END", body);
    text.replace(body, (end == std::string::npos ? text.size() : end) - body, kBlank);
    if (end == std::string::npos) return;
    at = text.find(kBegin, body + kBlank.size());  // that of the END line
    if (at == std::string::npos) return;
  }
}

// scheme://user:password@host
void clean_addresses(std::string& text) {
  for (std::size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 3)) {
    std::size_t end = at + 3;
    while (end < text.size() && text[end] != '/' && text[end] != '@' && !ends_value(text[end]))
      ++end;
    if (end >= text.size() || text[end] != '@') continue;
    // Without a colon the whole of it goes: https://TOKEN@host is usual. An @ of a password needs
    // no care, since a valid address has %40 for it.
    const std::size_t colon = text.find(':', at + 3);
    const std::size_t from = colon < end ? colon + 1 : at + 3;
    if (from < end) text.replace(from, end - from, kBlank);
  }
}

// Keys are found anywhere, even without a name before them. The prefix alone is not enough: "hf_"
// and "sk-" begin ordinary words, too; hence kLeastKey.
void clean_known_keys(std::string& text) {
  for (const std::string_view maker : kMakers) {
    for (std::size_t at = text.find(maker); at != std::string::npos;
         at = text.find(maker, at + 1)) {
      if (at > 0 && is_word(text[at - 1])) continue;
      std::size_t end = at + maker.size();
      while (end < text.size() && (is_word(text[end]) || text[end] == '.')) ++end;
      if (end - at - maker.size() >= kLeastKey) text.replace(at, end - at, kBlank);
    }
  }
}

// At `at`, after a name of a secret: blanks the value, if there is one, and returns where it ends.
std::size_t blank_value(std::string& text, std::size_t at, bool dashed) {
  std::size_t value = at;
  while (value < text.size() &&
         (text[value] == '"' || text[value] == '\'' || is_blank(text[value])))
    ++value;
  // "name": "value" of JSON and NAME='value' of a shell: quotes and blanks stand on both sides of
  // the sign.
  const bool assigned = value < text.size() && (text[value] == '=' || text[value] == ':');
  if (assigned) {
    ++value;
    // Without a sign only an option takes the next word as its value: "token expired" is a
    // sentence.
  } else if (!dashed || value == at) {
    return at;
  }
  while (value < text.size() &&
         (text[value] == '"' || text[value] == '\'' || is_blank(text[value])))
    ++value;
  std::size_t end = value_end(text, value);
  // "Authorization: Bearer VALUE": the scheme is useful, the word after it is secret.
  for (const std::string_view scheme :
       {std::string_view("bearer"), std::string_view("basic"), std::string_view("token")}) {
    if (end - value != scheme.size() || end >= text.size() || text[end] != ' ') continue;
    if (!std::equal(scheme.begin(), scheme.end(), text.begin() + static_cast<std::ptrdiff_t>(value),
                    [](char a, char b) { return a == lower(b); })) {
      continue;
    }
    value = end + 1;
    end = value_end(text, value);
    break;
  }
  // "--token --verbose": the next option is not a value.
  if (end == value || (!assigned && text[value] == '-')) return at;
  text.replace(value, end - value, kBlank);
  return value + kBlank.size();
}

void clean_named(std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const bool dashed = word.size() > 1 && word[0] == '-';
    const bool bearer = word == "Bearer" || word == "bearer";
    at = bearer || names_a_secret(word) ? std::max(end, blank_value(text, end, dashed || bearer))
                                        : end;
  }
}

}  // namespace

bool names_a_secret(std::string_view name) {
  std::string small(name);
  std::transform(small.begin(), small.end(), small.begin(), lower);
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](std::string_view word) { return small.find(word) != std::string::npos; });
}

SecretFilter::SecretFilter(const std::vector<std::pair<std::string, std::string>>& environment) {
  for (const auto& [name, value] : environment) {
    if (value.size() >= kLeastValue && names_a_secret(name)) values_.push_back(value);
  }
  // If one value is part of another, replacing the shorter first would leave the rest of the
  // longer.
  std::sort(values_.begin(), values_.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string SecretFilter::clean(std::string text) const {
  // The values that are known for certain come first: a pattern might take a part of one and leave
  // a rest that no longer matches.
  for (const std::string& value : values_) replace_all(text, value, kBlank);
  clean_pem(text);
  clean_addresses(text);
  clean_known_keys(text);
  clean_named(text);
  return text;
}

std::vector<std::string> without_secrets(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  bool next_is_secret = false;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (next_is_secret && word.substr(0, 1) != "-") {
      out.emplace_back(kBlank);
      next_is_secret = false;
      continue;
    }
    next_is_secret = false;
    if (equals != std::string::npos && names_a_secret(word.substr(0, equals))) {
      out.push_back(word.substr(0, equals + 1) + std::string(kBlank));
      continue;
    }
    next_is_secret =
        equals == std::string::npos && word.substr(0, 1) == "-" && names_a_secret(word);
    out.push_back(word);
  }
  return out;
}

}  // namespace hora::launcher
