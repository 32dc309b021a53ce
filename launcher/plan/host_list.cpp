// SPDX-License-Identifier: Apache-2.0
// Parses -H lists and hostfiles with one parser, whose errors point at the byte in question.
// Anything that could be mistaken for something else (an IPv6 address without brackets, a path,
// user names with blanks) is an error rather than a guess.
#include "launcher/plan/host_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <variant>

#include "launcher/plan/selection.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMaxNameBytes = 255;
// Large enough for one mention for each rank of the largest job, as in the node files of batch
// systems. The limit bounds the time.
constexpr int kMostMentions = 1'000'000;
constexpr int kMostPort = 65'535;
constexpr std::string_view kScheme = "ssh://";
constexpr std::string_view kExpectedHost = "expected a host, such as node1:4";
constexpr std::string_view kExpectedLine = "expected one host per line, such as node1 slots=4";

// Own versions of these: those of <cctype> depend on the locale.
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_byte(char c) {
  return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_';
}
bool is_user_byte(char c) {
  return is_name_byte(c) || c == '+' || c == '$' || c == '\\' || c == '@';
}

// Returns the canonical spelling of an IPv6 literal (with its zone, if any), or nothing. Two
// spellings of one address must count as one host.
std::optional<std::string> canonical_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  const std::string_view zone =
      percent == std::string_view::npos ? std::string_view{} : text.substr(percent + 1);
  if (percent != std::string_view::npos &&
      (zone.empty() || !std::all_of(zone.begin(), zone.end(), is_name_byte))) {
    return std::nullopt;
  }
  const std::string address(text.substr(0, percent));
  if (address.find('\0') != std::string::npos) return std::nullopt;  // inet_pton would stop there
  in6_addr bytes{};
  std::array<char, INET6_ADDRSTRLEN> spelt{};
  if (inet_pton(AF_INET6, address.c_str(), &bytes) != 1 ||
      inet_ntop(AF_INET6, &bytes, spelt.data(), spelt.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(spelt.data()) + (zone.empty() ? "" : "%" + std::string(zone));
}

// Detects an IPv6 literal without brackets, with or without slots after it.
bool is_naked_ipv6(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2 &&
         (canonical_ipv6(text) || canonical_ipv6(text.substr(0, text.rfind(':'))));
}

// Four numbers with dots look like an address to every reader; as a name they would resolve to
// something surprising, or not at all.
bool is_false_ipv4(const std::string& name) {
  if (name.find_first_not_of("0123456789.") != std::string::npos) return false;
  if (std::count(name.begin(), name.end(), '.') != 3) return false;
  in_addr bytes{};
  return inet_pton(AF_INET, name.c_str(), &bytes) != 1;
}

// The words of other programs for a host in such a file, and the words to use here. Empty: unknown.
std::string hint_for(std::string_view key) {
  const std::string name = lower_case(key);
  if (name.ends_with("user")) return "; a user is part of the host: user@host";
  if (name.ends_with("port")) {
    return "; the port of the SSH server is port=2222";
  }
  if (name == "ifname" || name == "netmask")
    return "; networks are given with --network-interfaces";
  for (const std::string_view count : {"cpus", "np", "nslots", "gpus", "ppn"}) {
    if (name == count) return "; the number of ranks is slots=N";
  }
  if (name == "ansible-host" || name == "ansible_host") {
    return "; an address of another name is set in the SSH configuration (Host, HostName)";
  }
  return {};
}

// The attributes of a line, in Open MPI's and Hydra's spellings.
bool is_slots_key(std::string_view key) { return key == "slots" || key == "cpu" || key == "count"; }
bool is_max_slots_key(std::string_view key) {
  return key == "max_slots" || key == "max-slots" || key == "slots_max" || key == "slots-max";
}
bool is_user_key(std::string_view key) {
  return key == "user" || key == "username" || key == "user_name" || key == "user-name";
}

// Collects hosts in the order of their first mention, each once. Names compare without case.
class HostCollector {
 public:
  // Returns what is wrong with naming this host here, or nothing.
  std::optional<std::string> add(Host host) {
    if (++mentions_ > kMostMentions) {
      return "hosts are listed more than " + std::to_string(kMostMentions) + " times";
    }
    const auto literal = canonical_ipv6(host.name);
    const auto [place, is_new] =
        places_.try_emplace(literal ? *literal : lower_case(host.name), hosts_.size());
    if (is_new) {
      if (hosts_.size() >= kMaxHosts) {
        return "more than " + std::to_string(kMaxHosts) + " hosts";
      }
      hosts_.push_back(std::move(host));
      return std::nullopt;
    }
    Host& known = hosts_[place->second];
    if (known.user != host.user) {
      return "host " + known.name + " is listed for two users, " + user_text(known) + " and " +
             user_text(host) + "; use the same user each time";
    }
    if (known.port != host.port) {
      return "host " + known.name + " is listed with two ports, " + port_text(known) + " and " +
             port_text(host) +
             "; two servers of one machine get names in the SSH configuration (Host, HostName, "
             "Port)";
    }
    // Each mention without a number counts one slot, as in the node files of batch systems.
    const int sum = known.slots.value_or(1) + host.slots.value_or(1);
    if (sum > kMaxSlotsPerHost) {
      return "host " + known.name + " adds up to more than " + std::to_string(kMaxSlotsPerHost) +
             " slots";
    }
    known.slots = sum;
    return std::nullopt;
  }

  bool empty() const { return hosts_.empty(); }
  std::vector<Host> take() { return std::move(hosts_); }

 private:
  static std::string user_text(const Host& host) {
    return host.user.empty() ? "the default one" : host.user;
  }
  static std::string port_text(const Host& host) {
    return host.port ? std::to_string(*host.port) : "the default one";
  }

  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t> places_;
  int mentions_ = 0;
};

// Reads hosts from one line. Every function returns false after it has set the error.
class LineParser {
 public:
  LineParser(const SpecLine& line, HostCollector& hosts) : line_(line), hosts_(hosts) {}

  // "a:4, b:4"
  Status parse_list() {
    skip_blanks();
    if (at_end()) {
      fail(at_, "the list of hosts is empty; " + std::string(kExpectedHost));
      return *error_;
    }
    for (;;) {
      if (!parse_host() || !add_hosts()) return *error_;
      skip_blanks();
      if (at_end()) return Ok{};
      if (peek() != ',') {
        fail(at_, "expected ',' between two hosts, found " + describe_byte(peek()));
        return *error_;
      }
      ++at_;
      skip_blanks();
    }
  }

  // "a slots=4 max_slots=8   # comment"
  Status parse_hostfile_line() {
    is_file_ = true;
    skip_blanks();
    if (at_end() || peek() == '#') return Ok{};
    if (!parse_host() || !parse_attributes() || !add_hosts()) return *error_;
    return Ok{};
  }

 private:
  bool at_end() const { return at_ >= line_.text.size(); }
  char peek() const { return line_.text[at_]; }
  void skip_blanks() {
    while (!at_end() && is_blank(peek())) ++at_;
  }

  // Only the first error counts: the others are its consequences.
  bool fail(std::size_t offset, std::string_view message) {
    if (!error_) error_ = spec_error(line_, offset, message);
    return false;
  }

  // Returns the bytes up to a blank, '#', or a comma outside brackets.
  std::string_view next_word() {
    const std::size_t start = at_;
    bool in_brackets = false;
    for (; !at_end(); ++at_) {
      const char c = peek();
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (is_blank(c) || c == '#' || (c == ',' && !in_brackets)) break;
    }
    return line_.text.substr(start, at_ - start);
  }

  bool parse_host() {
    item_start_ = at_;
    user_.clear();
    slots_.reset();
    port_.reset();
    std::string_view word = next_word();
    if (word.empty()) {
      return fail(
          at_, std::string(kExpectedHost) + (at_end() ? "" : ", found " + describe_byte(peek())));
    }
    std::size_t offset = item_start_;
    has_scheme_ = word.starts_with(kScheme);
    if (has_scheme_) {
      offset += kScheme.size();
      word.remove_prefix(kScheme.size());
    }
    // The last '@' separates: some user names contain one (Kerberos, Active Directory).
    const std::size_t at_sign = word.rfind('@');
    if (at_sign != std::string_view::npos) {
      if (!parse_user(word.substr(0, at_sign), offset)) return false;
      offset += at_sign + 1;
      word.remove_prefix(at_sign + 1);
    }
    const std::size_t close = word.find(']');
    // "n[1-4]" is a range; only brackets with a colon inside hold an address.
    if (!word.empty() && word[0] == '[' && word.substr(0, close).find(':') != word.npos) {
      return parse_ipv6(word, offset);
    }
    if (is_file_ && word.size() > 2 && word[0] == '[' && close == word.size() - 1 &&
        is_letter(word[1])) {
      return fail(offset, "a hostfile has no sections; " + std::string(kExpectedLine));
    }
    if (is_naked_ipv6(word)) {
      return fail(offset, "write an IPv6 address in brackets: [" + std::string(word) +
                              "]:" + (has_scheme_ ? "2222:4" : "4"));
    }
    return parse_name(word, offset);
  }

  bool parse_user(std::string_view user, std::size_t offset) {
    if (user.empty()) return fail(offset, "expected a user name before '@'");
    for (std::size_t i = 0; i < user.size(); ++i) {
      // A leading '-' would turn the user name into an option of ssh.
      if (!is_user_byte(user[i]) || (i == 0 && user[i] == '-')) {
        return fail(offset + i, describe_byte(user[i]) + " in a user name; expected user@host");
      }
    }
    user_ = user;
    return true;
  }

  bool parse_ipv6(std::string_view word, std::size_t offset) {
    const std::size_t close = word.find(']');
    if (close == std::string_view::npos) {
      return fail(offset, "'[' has no ']'; expected an IPv6 address such as [fe80::1]:4");
    }
    const std::string_view literal = word.substr(1, close - 1);
    if (!canonical_ipv6(literal)) {
      return fail(offset + 1, "'" + std::string(literal) + "' is not an IPv6 address");
    }
    names_.assign(1, std::string(literal));
    const std::string_view rest = word.substr(close + 1);
    if (rest.empty()) return true;
    if (rest[0] != ':') return fail(offset + close + 1, "expected ':' and the slots after ']'");
    return parse_numbers(rest.substr(1), offset + close + 2);
  }

  bool parse_name(std::string_view word, std::size_t offset) {
    const std::size_t colon = word.find(':');
    const std::string_view pattern = word.substr(0, colon);
    if (!check_pattern(pattern, offset)) return false;
    // The limit holds for each item; HostCollector enforces it for the sum.
    auto expanded = expand_host_range(pattern, kMaxHosts);
    if (const auto* problem = std::get_if<RangeProblem>(&expanded)) {
      return fail(offset + problem->offset, problem->message);
    }
    names_ = std::get<std::vector<std::string>>(std::move(expanded));
    for (const std::string& name : names_) {
      if (name.size() > kMaxNameBytes) return fail(offset, "this host name is too long");
      if (is_false_ipv4(name)) return fail(offset, "'" + name + "' is not an IPv4 address");
    }
    if (colon == std::string_view::npos) return true;
    return parse_numbers(word.substr(colon + 1), offset + colon + 1);
  }

  bool check_pattern(std::string_view pattern, std::size_t offset) {
    if (pattern.empty()) return fail(offset, "expected a host name before the slots");
    bool in_brackets = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const char c = pattern[i];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (c == '[' || c == ']' || (in_brackets && c == ',')) continue;
      if (in_brackets && c == '/') {
        return fail(offset + i, "a range has no step; write each number, such as n[1,5,9]");
      }
      // The usual mistake: a hostfile's path given to -H.
      if (c == '/') {
        return fail(offset + i, "a host name cannot contain '/'; " + hint_for_path(pattern, i));
      }
      if (c == '=')
        return fail(offset + i, "a host name cannot contain '='; write ':' before the slots");
      if (!is_name_byte(c)) {
        return fail(offset + i, "a host name cannot contain " + describe_byte(c) +
                                    "; expected letters, digits, '.', '-', '_'");
      }
    }
    // A leading '-' would turn the host name into an option of a client program.
    if (pattern[0] == '-' || pattern[0] == '.') {
      return fail(offset, "a host name cannot begin with " + describe_byte(pattern[0]));
    }
    return true;
  }

  std::string hint_for_path(std::string_view pattern, std::size_t slash) const {
    const std::string_view rest = pattern.substr(slash + 1);
    const std::size_t end = rest.find_first_not_of("0123456789");
    if (slash > 0 && !rest.empty() && end != 0 &&
        (end == rest.npos || rest[end] == '*' || rest[end] == '+')) {
      return "PBS's exec_host names processors; give hosts with slots, such as node1:4";
    }
    return is_file_ ? std::string(kExpectedLine) : "use --hostfile for a file";
  }

  // What follows the name: its slots, or after "ssh://" its port and perhaps its slots.
  bool parse_numbers(std::string_view text, std::size_t offset) {
    const std::size_t colon = text.find(':');
    if (!has_scheme_) {
      // Two numbers: the first one is meant as a port.
      if (colon == std::string_view::npos ||
          text.find_first_not_of("0123456789:") != std::string_view::npos) {
        return parse_slots(text, offset);
      }
      const std::string_view name = line_.text.substr(item_start_, offset - item_start_);
      return fail(offset + colon, "a host with a port is written " + std::string(kScheme) +
                                      std::string(name) + std::string(text) +
                                      (is_file_ ? ", or as an attribute, port=2222" : ""));
    }
    if (!parse_port(text.substr(0, colon), offset)) return false;
    if (colon == std::string_view::npos) return true;
    return parse_slots(text.substr(colon + 1), offset + colon + 1);
  }

  bool parse_port(std::string_view text, std::size_t offset) {
    int port = 0;
    if (!parse_number(text, offset, "the port", kMostPort, port)) return false;
    if (port < 1) return fail(offset, "a port is a number from 1 to 65535");
    port_ = port;
    return true;
  }

  bool parse_slots(std::string_view text, std::size_t offset) {
    int slots = 0;
    if (!parse_number(text, offset, "the number of slots", kMaxSlotsPerHost, slots)) return false;
    slots_ = slots;
    return true;
  }

  bool parse_number(std::string_view text, std::size_t offset, const std::string& what, int most,
                    int& out) {
    if (text.empty()) return fail(offset, "expected " + what);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!is_digit(text[i])) {
        return fail(offset + i, "expected " + what + " in digits, found " + describe_byte(text[i]));
      }
      // Checked digit by digit, so the number cannot overflow.
      out = out * 10 + (text[i] - '0');
      if (out > most) {
        return fail(offset, what + " is too large; at most " + std::to_string(most));
      }
    }
    return true;
  }

  // Parses slots=N, max_slots=N, port=N and user=NAME, with optional blanks around '='. max_slots
  // is checked but has no other effect: a host never runs more ranks than it has slots.
  bool parse_attributes() {
    skip_blanks();
    if (!at_end() && is_digit(peek()) && !slots_) return parse_grid_engine_fields();
    const bool named_slots = slots_.has_value();  // "a:4"
    std::optional<int> max_slots;
    std::size_t max_slots_offset = 0;
    for (;;) {
      skip_blanks();
      if (at_end() || peek() == '#') break;
      const std::size_t key_start = at_;
      if (peek() == ',') return fail(at_, "expected one host per line; -H takes lists");
      while (!at_end() && (is_letter(peek()) || peek() == '_' || peek() == '-')) ++at_;
      const std::string_view key = line_.text.substr(key_start, at_ - key_start);
      skip_blanks();
      const bool is_slots = is_slots_key(key);
      const bool is_max = is_max_slots_key(key);
      const bool is_port = key == "port";
      const bool is_user = is_user_key(key);
      if ((!is_slots && !is_max && !is_port && !is_user) || at_end() || peek() != '=') {
        return fail(key_start,
                    "expected slots=N, max_slots=N or port=N after the host" + hint_for(key));
      }
      ++at_;
      skip_blanks();
      const std::size_t value_start = at_;
      const std::string_view value = next_word();
      if (is_port) {
        if (port_) return fail(key_start, "the port of this host appears twice");
        if (!parse_port(value, value_start)) return false;
        continue;
      }
      if (is_user) {
        if (!user_.empty()) return fail(key_start, "the user of this host appears twice");
        if (value.empty()) return fail(value_start, "expected the name of the user");
        if (!parse_user(value, value_start)) return false;
        continue;
      }
      int number = 0;
      if (!parse_number(value, value_start, "the number of slots", kMaxSlotsPerHost, number)) {
        return false;
      }
      // Repeating an attribute is most likely an editing mistake.
      if (is_slots ? slots_.has_value() : max_slots.has_value()) {
        const bool may_be_port = is_slots && named_slots;
        return fail(key_start, std::string("the slots of this host appear twice") +
                                   (may_be_port ? hint_for("ssh_port") : ""));
      }
      if (is_max) max_slots_offset = value_start;
      (is_slots ? slots_ : max_slots) = number;
    }
    if (max_slots && *max_slots < slots_.value_or(1)) {
      return fail(max_slots_offset, "max_slots is less than the slots of this host");
    }
    return true;
  }

  // The rest of a line of Grid Engine's $PE_HOSTFILE: the slots, the queue, the processors. The
  // last two say where the slots come from and have no effect.
  bool parse_grid_engine_fields() {
    const std::size_t start = at_;
    const std::string_view count = next_word();
    // Its numbers are not counts.
    if (!at_end() && peek() == ',') {
      return fail(start,
                  "expected the number of slots, found a list of processors, as in "
                  "$LSB_AFFINITY_HOSTFILE; $LSB_DJOB_HOSTFILE names a host for each rank");
    }
    if (names_.front() == "rank" && count.find('=') != std::string_view::npos) {
      return fail(item_start_, "this is a line of a rankfile; give the file with --rankfile");
    }
    if (!parse_slots(count, start)) return false;
    for (int field = 0; field < 2; ++field) {
      skip_blanks();
      const std::size_t field_start = at_;
      while (!at_end() && peek() != '#' && !is_blank(peek())) {
        // "a 4 max_slots=8" is another file's line, cut short.
        if (peek() == '=') return fail(field_start, "expected slots=N for an attribute to follow");
        ++at_;
      }
    }
    skip_blanks();
    if (at_end() || peek() == '#') return true;
    return fail(at_, "expected the end of the line after host, slots, queue and processors");
  }

  bool add_hosts() {
    for (std::string& name : names_) {
      if (auto problem = hosts_.add(Host{std::move(name), user_, slots_, {}, port_})) {
        return fail(item_start_, *problem);
      }
    }
    return true;
  }

  SpecLine line_;
  HostCollector& hosts_;
  std::size_t at_ = 0;
  std::optional<Error> error_;
  // The item being read.
  std::size_t item_start_ = 0;
  bool is_file_ = false;
  bool has_scheme_ = false;
  std::string user_;
  std::vector<std::string> names_;
  std::optional<int> slots_;
  std::optional<int> port_;
};

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text, std::string_view origin) {
  HostCollector hosts;
  HORA_TRY(LineParser(SpecLine{origin, text, 0}, hosts).parse_list());
  return hosts.take();
}

Result<std::vector<Host>> parse_hostfile_line(std::string_view line, std::string_view origin) {
  HostCollector hosts;
  HORA_TRY(LineParser(SpecLine{origin, line, 0}, hosts).parse_hostfile_line());
  return hosts.take();
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path) {
  const std::string where(path);
  // Editors on Windows write UTF-16; its bytes would give a confusing error.
  if (text.substr(0, 2) == "\xFF\xFE" || text.substr(0, 2) == "\xFE\xFF") {
    return make_error(ErrorCode::kUsage, where + ": this file is UTF-16; expected UTF-8 or ASCII");
  }
  text = without_mark(text);

  HostCollector hosts;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    // Lines may end as on Windows.
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    HORA_TRY(LineParser(SpecLine{where, line, number}, hosts).parse_hostfile_line());
  }
  if (hosts.empty()) {
    return make_error(ErrorCode::kUsage,
                      where + ": this file lists no host; expected lines such as 'node1 slots=4'");
  }
  return hosts.take();
}

Status add_hosts(std::vector<Host>& known, std::vector<Host> more, std::string_view origin) {
  HostCollector hosts;
  // Known hosts go in again: their slots add up with those of the same name in `more`.
  known.insert(known.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  for (Host& host : known) {
    if (auto problem = hosts.add(std::move(host))) {
      return make_error(ErrorCode::kUsage, std::string(origin) + ": " + *problem);
    }
  }
  known = hosts.take();
  return Ok{};
}

std::string format_host(Host host, std::optional<int> slots) {
  host.slots = slots;
  return format_host(host);
}

std::string format_host(const Host& host) {
  std::string out(host.port ? kScheme : std::string_view());
  if (!host.user.empty()) out += host.user + "@";
  const bool is_ipv6 = host.name.find(':') != std::string::npos;
  out += is_ipv6 ? "[" + host.name + "]" : host.name;
  if (host.port) out += ":" + std::to_string(*host.port);
  if (host.slots) out += ":" + std::to_string(*host.slots);
  return out;
}

std::string format_host_list(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& host : hosts) {
    if (!out.empty()) out += ",";
    out += format_host(host);
  }
  return out;
}

}  // namespace hora::launcher
