// SPDX-License-Identifier: Apache-2.0
// The parser reads line by line, as ssh does: Host and Match lines switch the following lines on or
// off, and the first value for a keyword wins. It never runs a command and does no I/O itself.
#include "launcher/transports/ssh_config.h"

#include <algorithm>
#include <cctype>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// OpenSSH has the same limit.
constexpr int kMaxIncludeDepth = 16;
// The limit for all files together. Files that include each other more than once yield 2, 4, 8, ...
// texts at each depth.
constexpr int kMaxIncluded = 1024;

// Keywords that could change where a connection goes or whom it trusts. The transport warns about
// those that are set to another value than the harmless one.
constexpr UnfollowedKeyword kUnfollowed[] = {
    {"KnownHostsCommand", "none", "the host keys that it would supply are not used"},
    {"VerifyHostKeyDNS", "no", "host keys are not looked up in DNS"},
    {"NoHostAuthenticationForLocalhost", "no", "the key of localhost is checked"},
    {"CanonicalizeHostname", "no", "host names are used as they are"},
    {"CertificateFile", "none", "no certificate of yours is offered"},
    {"PKCS11Provider", "none", "its keys are not offered"},
    {"ProxyUseFdpass", "no", "the ProxyCommand must pass bytes, not a descriptor"},
    {"Match exec", "", "its block is skipped, and the command is not run"},
    {"Match canonical", "", "its block is skipped"},
    {"Match localnetwork", "", "its block is skipped"},
    {"Match tagged", "", "its block is skipped"},
    {"Match command", "", "its block is skipped"},
    {"Match sessiontype", "", "its block is skipped"},
    {"Match version", "", "its block is skipped"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f'; }

// Splits the rest of a line into words. A word may be in double quotes, and an unquoted '#' at the
// start of a word begins a comment.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::size_t i = 0;
  while (i < text.size()) {
    while (i < text.size() && is_blank(text[i])) ++i;
    if (i >= text.size() || text[i] == '#') break;
    std::string word;
    bool quoted = false;
    for (; i < text.size() && (quoted || !is_blank(text[i])); ++i) {
      if (text[i] == '"') {
        quoted = !quoted;
      } else {
        word += text[i];
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

struct Line {
  std::string keyword;  // lower case
  std::vector<std::string> words;
  std::string rest;  // as written, for values that are whole lines
};

// The grammar is "keyword words" or "keyword=words", with blanks around the '='.
Line parse_line(std::string_view text) {
  text = trim(text);
  Line line;
  if (text.empty() || text.front() == '#') return line;
  std::size_t end = 0;
  while (end < text.size() && !is_blank(text[end]) && text[end] != '=') ++end;
  line.keyword = lower(text.substr(0, end));
  std::string_view rest = trim(text.substr(end));
  if (!rest.empty() && rest.front() == '=') rest = trim(rest.substr(1));
  line.rest = std::string(rest);
  line.words = split_words(rest);
  return line;
}

// Matches a list of patterns. One negated match ("!pattern") makes the whole list fail, wherever it
// is; a list with negated patterns only never matches.
template <typename Patterns>
bool matches_list(const std::string& text, const Patterns& patterns) {
  bool matched = false;
  for (const auto& entry : patterns) {
    std::string pattern = lower(entry);
    const bool negated = !pattern.empty() && pattern.front() == '!';
    if (negated) pattern.erase(0, 1);
    if (!matches_pattern(text, pattern)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

// Only the first value of a keyword counts here as well, so a later line cannot add a warning.
void note_unfollowed(const std::string& keyword, const std::string& value, SshConfig& config) {
  for (const UnfollowedKeyword& each : kUnfollowed) {
    const std::string name(each.name);
    auto& seen = config.seen;
    if (lower(name) != keyword || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    if (value != each.harmless) config.not_followed.push_back(name);
  }
}

// Host lines match the name as the user typed it; Match lines combine criteria, all of which must
// hold.
bool matches_block(const Line& line, const SshConfigQuery& query, SshConfig& config) {
  const std::string original = lower(query.original_host);
  if (line.keyword == "host") return matches_list(original, line.words);
  for (std::size_t i = 0; i < line.words.size(); ++i) {
    std::string criterion = lower(line.words[i]);
    const bool negated = !criterion.empty() && criterion.front() == '!';
    if (negated) criterion.erase(0, 1);
    if (criterion == "all") {
      if (negated) return false;
      continue;
    }
    // "final" asks for a second pass after ssh has canonicalized host names. There is no such pass
    // here, so the first pass is the final one.
    if (criterion == "final" && !negated) continue;
    if (criterion == "canonical" && negated) continue;
    if (criterion == "final" || criterion == "canonical") {
      if (criterion == "canonical") note_unfollowed("match canonical", "yes", config);
      return false;
    }
    // Every criterion from here on takes an argument; without one the line is malformed and matches
    // nothing.
    if (++i >= line.words.size()) return false;
    std::string value;
    // "Match host" sees the name after HostName was applied so far, "originalhost" the typed one.
    if (criterion == "host") {
      value = lower(config.hostname.value_or(original));
    } else if (criterion == "originalhost") {
      value = original;
    } else if (criterion == "user") {
      value = lower(!query.user.empty() ? query.user : config.user.value_or(query.local_user));
    } else if (criterion == "localuser") {
      value = lower(query.local_user);
      // Any other criterion (exec above all) is skipped with its block rather than evaluated.
    } else {
      note_unfollowed("match " + criterion, "yes", config);
      return false;
    }
    if (matches_list(value, split(line.words[i], ',')) == negated) return false;
  }
  return !line.words.empty();
}

// ssh's central rule: the first value wins, so specific blocks come before general ones.
template <typename T>
void keep_first(std::optional<T>& slot, T value) {
  if (!slot) slot = std::move(value);
}

std::optional<HostKeyChecking> parse_checking(const std::string& text) {
  if (text == "yes" || text == "ask" || text == "true") return HostKeyChecking::kYes;
  if (text == "accept-new") return HostKeyChecking::kAcceptNew;
  if (text == "no" || text == "off" || text == "false") return HostKeyChecking::kNo;
  return std::nullopt;
}

// Unknown keywords and invalid values have no effect; ssh itself reports them.
void apply(const Line& line, SshConfig& config) {
  if (line.words.empty()) return;
  const std::string& key = line.keyword;
  const std::string& word = line.words.front();
  const auto number = parse_int<int>(word);
  if (key == "hostname") keep_first(config.hostname, word);
  if (key == "user") keep_first(config.user, word);
  if (key == "port" && number && *number > 0 && *number <= 65535) keep_first(config.port, *number);
  if (key == "identityfile" && lower(word) != "none") config.identity_files.push_back(word);
  if (key == "identitiesonly") keep_first(config.identities_only, lower(word) == "yes");
  if (key == "identityagent") keep_first(config.identity_agent, word);
  // ProxyCommand and ProxyJump exclude each other; the first one named wins.
  const bool proxy_open = !config.proxy_command && !config.proxy_jump;
  if (key == "proxycommand" && proxy_open) config.proxy_command = line.rest;
  if (key == "proxyjump" && proxy_open) config.proxy_jump = word;
  if (key == "stricthostkeychecking") {
    if (const auto checking = parse_checking(lower(word))) {
      keep_first(config.host_key_checking, *checking);
    }
  }
  if (key == "userknownhostsfile") keep_first(config.user_known_hosts_files, line.words);
  if (key == "globalknownhostsfile") keep_first(config.global_known_hosts_files, line.words);
  if (key == "hostkeyalias") keep_first(config.host_key_alias, word);
  if (key == "connecttimeout" && number && *number > 0) {
    keep_first(config.connect_timeout_s, *number);
  }
  if (key == "addressfamily") keep_first(config.address_family, lower(word));
  if (key == "ciphers") keep_first(config.ciphers, word);
  if (key == "kexalgorithms") keep_first(config.kex_algorithms, word);
  if (key == "macs") keep_first(config.macs, word);
  if (key == "hostkeyalgorithms") keep_first(config.host_key_algorithms, word);
  if (key == "pubkeyacceptedalgorithms" || key == "pubkeyacceptedkeytypes") {
    keep_first(config.pubkey_algorithms, word);
  }
  if (key == "bindaddress") keep_first(config.bind_address, word);
  if (key == "bindinterface") keep_first(config.bind_interface, word);
  if (key == "revokedhostkeys") keep_first(config.revoked_host_keys, word);
  if (key == "pubkeyauthentication") keep_first(config.pubkey_authentication, lower(word) != "no");
  if (key == "preferredauthentications") keep_first(config.preferred_authentications, lower(word));
  note_unfollowed(key, lower(word), config);
}

// Include works inside a Host or Match block too, and then applies only where the block matches.
// The included text starts with all lines active, as a file of its own.
void read_at_depth(std::string_view text, const SshConfigQuery& query,
                   const SshConfigIncluder& include, SshConfig& config, int depth) {
  bool active = true;
  for (std::string_view raw : split(text, '\n')) {
    const Line line = parse_line(raw);
    if (line.keyword.empty()) continue;
    if (line.keyword == "host" || line.keyword == "match") {
      active = matches_block(line, query, config);
    } else if (!active) {
      continue;
    } else if (line.keyword == "include") {
      if (depth >= kMaxIncludeDepth || !include) continue;
      for (const std::string& pattern : line.words) {
        if (config.too_many_included) return;
        for (const std::string& included : include(pattern)) {
          if (++config.included > kMaxIncluded) config.too_many_included = true;
          if (config.too_many_included) return;
          read_at_depth(included, query, include, config, depth + 1);
        }
      }
    } else {
      apply(line, config);
    }
  }
}

}  // namespace

// Iterative glob match with one backtracking point: after a mismatch, the last '*' takes one more
// character. The time is at most quadratic, whatever the pattern.
bool matches_pattern(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++t;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::span<const UnfollowedKeyword> unfollowed_keywords() { return kUnfollowed; }

void read_ssh_config(std::string_view text, const SshConfigQuery& query,
                     const SshConfigIncluder& include, SshConfig& config) {
  read_at_depth(text, query, include, config, 0);
}

// An unknown token stays as it is, since ssh has more of them than a launcher needs.
std::string expand_tokens(std::string_view text, const SshTokens& tokens) {
  std::string out;
  if (text == "~" || text.substr(0, 2) == "~/") {
    out = tokens.home;
    text.remove_prefix(1);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case '%':
        out += '%';
        break;
      case 'h':
        out += tokens.host;
        break;
      case 'n':
        out += tokens.original_host;
        break;
      case 'p':
        out += tokens.port;
        break;
      case 'r':
        out += tokens.remote_user;
        break;
      case 'u':
        out += tokens.local_user;
        break;
      case 'd':
        out += tokens.home;
        break;
      default:
        out += '%';
        out += text[i];
    }
  }
  return out;
}

}  // namespace hora::launcher
