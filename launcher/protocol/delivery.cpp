// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/delivery.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <sha256.h>  // libmd

#include "launcher/protocol/messages.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// The list is one word without blanks or quotes, since it crosses a remote login shell.

namespace {

// After a hash, each after a colon. Only the host knows whether they hold, and only the launcher
// what they mean: the agent compares names, and knows nothing about MPI.
constexpr std::string_view kGpu = "gpu";
constexpr std::string_view kWith = "with=";
constexpr std::string_view kLacks = "lacks=";
constexpr std::string_view kGlibc = "glibc=";
constexpr char kBetweenNames = '#';

void add_names(std::string& text, std::string_view key, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += ':';
  text += key;
  text += join(names, std::string(1, kBetweenNames));
}

// No character that a list or a shell gives a meaning.
bool is_library_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == '+';
  });
}

// The rest of `text` if it begins so.
std::optional<std::string_view> behind(std::string_view text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  return text.substr(prefix.size());
}

bool parse_names(std::string_view text, std::vector<std::string>& names) {
  for (const std::string_view name : split(text, kBetweenNames)) {
    if (!is_library_name(name)) return false;
    names.emplace_back(name);
  }
  return true;
}

bool parse_condition(std::string_view text, NeededPart& part) {
  if (text == kGpu) return part.with_gpu = true;
  if (const auto names = behind(text, kWith)) return parse_names(*names, part.with);
  if (const auto names = behind(text, kLacks)) return parse_names(*names, part.lacks);
  const auto version = behind(text, kGlibc);
  if (!version || version->find_first_not_of("0123456789.") != std::string_view::npos) return false;
  part.least_glibc = *version;
  return !version->empty();
}

Result<NeededPart> parse_part(std::string_view text) {
  NeededPart part;
  const std::vector<std::string_view> words = split(text, ':');
  part.hash = words.empty() ? std::string() : std::string(words.front());
  if (!is_hash(part.hash)) {
    return make_error(ErrorCode::kUsage,
                      "'" + part.hash.substr(0, 80) + "' is not a hash of a part");
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (parse_condition(words[i], part)) continue;
    return make_error(ErrorCode::kUsage,
                      "'" + std::string(words[i].substr(0, 80)) + "' is not a condition of a part");
  }
  return part;
}

// "2.34" against "2.28": glibc's first number has been 2 since 1997.
int release_of(std::string_view version) {
  int release = 0;
  for (std::size_t i = version.find('.') + 1; i < version.size() && release < 1000; ++i) {
    if (version[i] < '0' || version[i] > '9') break;
    release = release * 10 + (version[i] - '0');
  }
  return release;
}

// An unknown C library is given the benefit of the doubt, as elsewhere.
bool is_new_enough(std::string_view c_library, const std::string& least_glibc) {
  if (least_glibc.empty() || c_library.empty()) return true;
  const auto version = behind(c_library, "glibc ");
  return version && release_of(*version) >= release_of(least_glibc);
}

// A library that exists and cannot be loaded is worse than none: a program would find it first.
bool has(const Hello& host, const std::string& soname) {
  return std::any_of(host.libraries.begin(), host.libraries.end(), [&](const HostLibrary& each) {
    return each.soname == soname && each.fault.empty();
  });
}

}  // namespace

bool is_hash(std::string_view text) {
  return text.size() >= 16 && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string part_list_text(const std::vector<NeededPart>& parts) {
  std::string text;
  for (const NeededPart& part : parts) {
    if (!text.empty()) text += ',';
    text += part.hash;
    if (part.with_gpu) text += ':' + std::string(kGpu);
    add_names(text, kWith, part.with);
    add_names(text, kLacks, part.lacks);
    if (!part.least_glibc.empty()) text += ':' + std::string(kGlibc) + part.least_glibc;
  }
  return text;
}

Result<std::vector<NeededPart>> parse_part_list(std::string_view text) {
  std::vector<NeededPart> parts;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    auto part = parse_part(item);
    if (!part) return std::move(part).error();
    parts.push_back(std::move(*part));
  }
  return parts;
}

std::vector<std::string> libraries_in(const std::vector<NeededPart>& parts) {
  std::vector<std::string> names;
  for (const NeededPart& part : parts) {
    for (const auto* list : {&part.with, &part.lacks}) {
      for (const std::string& name : *list) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

// The agent uses this to decide what to ask for, and the launcher the same to know what ranks there
// use; so neither sends it to the other.
bool is_needed(const NeededPart& part, const Hello& host) {
  const auto is_there = [&host](const std::string& soname) { return has(host, soname); };
  if (part.with_gpu && host.gpus == 0) return false;
  if (!std::all_of(part.with.begin(), part.with.end(), is_there)) return false;
  if (!part.lacks.empty() && std::all_of(part.lacks.begin(), part.lacks.end(), is_there)) {
    return false;
  }
  return is_new_enough(host.c_library, part.least_glibc);
}

std::string bundle_name(std::vector<std::string> part_hashes) {
  std::sort(part_hashes.begin(), part_hashes.end());
  std::string text;
  for (const std::string& hash : part_hashes) text += hash + "\n";
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digest;
  SHA256Data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), digest.data());
  return digest.data();
}

// The role keeps a proof from being reflected to its maker; the id, from being used for another
// delivery.
std::string delivery_proof(std::string_view key, DeliveryRole role, const DeliveryTalk& talk) {
  return hmac_of_fields(key, {role == DeliveryRole::kFetching ? "fetching" : "serving", talk.id,
                              talk.fetching_nonce, talk.serving_nonce});
}

// Another role than those of the proofs, which travel in clear.
std::string delivery_seal_key(std::string_view key, const DeliveryTalk& talk) {
  return hmac_of_fields(key, {"sealing", talk.id, talk.fetching_nonce, talk.serving_nonce});
}

}  // namespace hora::launcher
