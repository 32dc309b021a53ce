// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_protocol.h"

#include <algorithm>

#include "rendezvous/base/address.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/base/little_endian.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kFingerprintDigits = 64;
constexpr std::size_t kTokenDigits = 32;

Error wrong(const std::string& why) {
  return make_error(ErrorCode::kUsage, "not what horarun --listen printed: " + why);
}

Result<JoinUrl::Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return wrong("expected ADDRESS:PORT after the '@', found " + quote(text));
  }
  const auto port = parse_port(text.substr(colon + 1));
  if (!port) return wrong("the port of " + quote(text) + " is not one");
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("[]") != std::string_view::npos) {
    return wrong("expected ADDRESS:PORT after the '@', found " + quote(text));
  }
  return JoinUrl::Address{std::string(host), *port};
}

}  // namespace

std::string format_join_address(const JoinUrl::Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

// Fingerprint and token have fixed lengths, so that nothing has to stand between them.
std::string format_join_url(const JoinUrl& url) {
  std::string text = std::string(kJoinScheme) + url.fingerprint + url.token;
  char separator = '@';
  for (const JoinUrl::Address& address : url.addresses) {
    text += separator + format_join_address(address);
    separator = ',';
  }
  return text;
}

std::string seed_of_key(std::string_view key) { return hmac_sha256(key, "certificate"); }

std::string token_of_key(std::string_view key) {
  return to_hex(hmac_sha256(key, "token").substr(0, kTokenDigits / 2));
}

// An error quotes the part after the '@', which is not a secret.
Result<JoinUrl> parse_join_url(std::string_view text) {
  text = trim(text);
  if (!text.starts_with(kJoinScheme)) {
    return wrong("it does not begin with " + std::string(kJoinScheme));
  }
  text.remove_prefix(kJoinScheme.size());
  const std::size_t at = text.find('@');
  const std::string_view secret = text.substr(0, at);
  if (at == std::string_view::npos || secret.size() != kFingerprintDigits + kTokenDigits ||
      !from_hex(secret)) {
    return wrong("expected " + std::to_string(kFingerprintDigits + kTokenDigits) +
                 " hexadecimal digits and '@' behind " + std::string(kJoinScheme) +
                 "; a part of the text is missing");
  }
  JoinUrl url{std::string(secret.substr(0, kFingerprintDigits)),
              std::string(secret.substr(kFingerprintDigits)),
              {}};
  for (const std::string_view item : split(text.substr(at + 1), ',')) {
    auto address = parse_address(item);
    if (!address) return std::move(address).error();
    url.addresses.push_back(std::move(*address));
  }
  return url;
}

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeader = 5;
constexpr std::size_t kTokenSize = 32;  // as os::random_token() makes it
constexpr std::size_t kLongestName = 255;

}  // namespace

// The version comes first and stays there, so that every later one can be distinguished from this
// one.
std::string encode(const JoinRequest& request) {
  std::string out;
  append_u32(out, kVersion);
  append_u32(out, request.slots);
  return out + request.token + request.name;
}

// Nothing of it is believed yet: the server compares the token and checks the name.
Result<JoinRequest> decode_join_request(std::string_view payload) {
  const auto version = read_u32(payload);
  if (version && *version != kVersion) {
    return make_error(ErrorCode::kFailed, "this horarun speaks version " +
                                              std::to_string(*version) + " of the protocol, not " +
                                              std::to_string(kVersion));
  }
  const auto slots = read_u32(payload);
  if (!slots || payload.size() < kTokenSize) {
    return make_error(ErrorCode::kFailed, "the request is incomplete");
  }
  return JoinRequest{std::string(payload.substr(0, kTokenSize)),
                     std::string(payload.substr(kTokenSize)), *slots};
}

// A name goes into variables, lists of hosts and messages on a terminal: nothing that could be
// taken for more than a name. The colon is that of IPv6 addresses.
bool is_machine_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == ':';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), fits);
}

// Two parts, so that the sender of a piece of a stream need not put its number in front of a copy
// of it.
void append_dial_frame(std::string& out, DialFrameType type, std::string_view head,
                       std::string_view body) {
  append_u32(out, static_cast<std::uint32_t>(head.size() + body.size()));
  out.push_back(static_cast<char>(type));
  out.append(head).append(body);
}

// No word of a command line can hold a NUL.
std::string encode_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(word).push_back('\0');
  std::string out;
  append_u32(out, static_cast<std::uint32_t>(text.size()));
  return out + text;
}

// The size comes first, so that any bytes may follow the arguments.
std::optional<std::vector<std::string>> decode_words(std::string_view& payload) {
  const auto size = read_u32(payload);
  if (!size || *size > payload.size()) return std::nullopt;
  std::string_view text = payload.substr(0, *size);
  payload.remove_prefix(*size);
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return words;
}

// A reader without half a frame starts at the beginning again, so the buffer stays as small as the
// largest read.
void DialFrameReader::feed(std::string_view bytes) {
  if (position_ == buffer_.size()) {
    buffer_.clear();
    position_ = 0;
  }
  buffer_.append(bytes);
}

// The length is checked as soon as it has arrived: no peer can make us keep a frame that is too
// long.
Result<std::optional<DialFrame>> DialFrameReader::next() {
  std::string_view rest = std::string_view(buffer_).substr(position_);
  const auto length = read_u32(rest);
  if (length && *length > largest_) {
    return make_error(ErrorCode::kFailed, "it sent a message that is too long");
  }
  if (!length || rest.size() < 1 + *length) {
    // Only an incomplete frame is ever moved.
    buffer_.erase(0, position_);
    position_ = 0;
    return std::optional<DialFrame>();
  }
  position_ += kHeader + *length;
  return std::optional(
      DialFrame{static_cast<DialFrameType>(rest.front()), rest.substr(1, *length)});
}

namespace {

// Parameters: a nonce, the kind of processor, where copies are put; for each file its SHA-256 and
// its size. The engine's texts are put in front: $_n, the host, $_i, the step, $_l, the launcher;
// $_v, when the launcher's lines are in a file. The rules for files in the cache are those of the
// script that starts agents (launcher/transports/bootstrap.cpp), and so are the names there: the
// helper is kept, and removed when it is not used any more, as an agent is.
constexpr std::string_view kScript =
    "_k=$1 _m=$2 _s=$3 _h=$4; shift 3; "
    "command -v mkdir >/dev/null 2>&1 || PATH=${PATH:+$PATH:}/usr/bin:/bin; "
    // Copies of this host alone go as soon as they have served; the launcher removes what all see.
    "_y() { [ -n \"$_v\" ] || rm -f \"${_s}0\" \"${_s}1\"; }; "
    "_w() { echo \"HORA-$_k failed $_n $1\"; _y; exit 1; }; "
    "[ -z \"$_v\" ] || { [ -r \"$_s$_v\" ] && [ -O \"$_s$_v\" ] || "
    "_w \"it does not see the folder ${_s%/*} of the machine of horarun\"; exec <\"$_s$_v\"; }; "
    // A file of the kernel's (since 6.1) costs less than a program.
    "{ read -r _a </proc/sys/kernel/arch; } 2>/dev/null || _a=$(uname -m); "
    "[ \"$_a\" = \"$_m\" ] || _w \"its processor is not this machine's\"; "
    "_c=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; _u=; "
    "_p() { [ -O \"$_d/..\" ] || [ -k \"$_d/..\" ] || { [ -w \"$_d/..\" ] && return 1; :; }; }; "
    "_o() { [ ! -L \"$_d\" ] && [ -O \"$_d\" ] && _p; }; "
    "_x() { [ -x \"$1\" ] && [ -s \"$1\" ] && [ -O \"$1\" ]; }; "
    // _e COMMAND...: runs it for each directory until it succeeds.
    "_e() { for _d in ${_c:+\"$_c/hora\"} \"${TMPDIR:-/tmp}/hora-\" /dev/shm/hora-; do "
    "case $_d in *-) _d=$_d${_u:=$(id -u)};; esac; "
    "case $_d in /*) ;; *) continue;; esac; \"$@\" && return; done; return 1; }; "
    "_g() { _a=$_d/agent-$_h; _x \"$_a\" && _o; }; "
    // _q SHA SIZE COPY: puts a copy there. Another task may share the directory and be as far.
    "_q() { (umask 077; mkdir -p \"$_d\") 2>/dev/null; [ -d \"$_d\" ] && _o || return 1; "
    "chmod 700 \"$_d\" 2>/dev/null; _t=$_d/.ship-$_k$_n; _b=$_d/agent-$1; "
    "cp \"$3\" \"$_t\" 2>/dev/null && chmod 700 \"$_t\" && [ $(wc -c <\"$_t\") -eq $2 ] && "
    "_x \"$_t\" && { ln \"$_t\" \"$_b\" 2>/dev/null || _x \"$_b\" || mv -f \"$_t\" \"$_b\"; }; "
    "_r=$?; rm -f \"$_t\"; return $_r; }; "
    "_e _g || { echo \"HORA-$_k need $_i\"; "
    "read -r _z && read -r _z && [ \"$_z\" = sent ] || exit 1; _j=0; "
    "while [ $# -gt 1 ]; do _f=$_s$_j; "
    "[ -f \"$_f\" ] && [ ! -L \"$_f\" ] && [ -O \"$_f\" ] || _w \"no file was copied there\"; "
    "_e _q $1 $2 \"$_f\" || _w \"no directory can hold the helper\"; "
    "_j=$((_j+1)); shift 2; done; _y; "
    "_e _g || _w \"no directory can hold the helper\"; }; "
    // A host that needed no copy may get one nevertheless, since another did: hora-dial removes it.
    "[ -z \"$_v\" ] || _s=; "
    "exec \"$_a\" $_k \"$_n\" \"$_l\" \"$_s\"";

// All placeholders of one word in a single pass, so that no value is searched for another one.
std::string fill(std::string_view word,
                 std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  std::string out;
  while (!word.empty()) {
    const auto found = std::find_if(values.begin(), values.end(), [word](const auto& each) {
      return word.starts_with(each.first);
    });
    if (found != values.end()) {
      out += found->second;
      word.remove_prefix(found->first.size());
    } else {
      out += word.front();
      word.remove_prefix(1);
    }
  }
  return out;
}

// It comes from a host, and goes into a command of this machine.
bool is_step(std::string_view text) {
  return !text.empty() && text.front() != '-' &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+") ==
             std::string_view::npos;
}

}  // namespace

// The names go into one word of a list, where a comma or a bracket would make other hosts of them,
// and a dash an option.
Result<std::vector<std::string>> step_command(const EngineStep& engine,
                                              const StepRequest& request) {
  std::string list;
  int gpus = 0;
  for (const Host& host : request.hosts) {
    if (host.name.empty() || host.name.front() == '-' ||
        host.name.find_first_of(", []") != std::string::npos) {
      return make_error(ErrorCode::kUsage, quote(host.name) + " cannot be the name of a node");
    }
    list += (list.empty() ? "" : ",") + host.name;
    if (const auto known = engine.gpus.find(host.name); known != engine.gpus.end()) {
      gpus += known->second;
    }
  }
  const std::string count = std::to_string(request.hosts.size());
  std::vector<std::string> words;
  for (const std::string& word : engine.start) {
    words.push_back(
        fill(word, {{"{hosts}", list}, {"{count}", count}, {"{gpus}", std::to_string(gpus)}}));
  }
  words.insert(words.end(),
               {"/bin/sh", "-c",
                "_n=" + engine.host_text + " _i=" + engine.step_text + " _l=" +
                    engine.launcher_text + (engine.folder.empty() ? " _v=; " : " _v=words; ") +
                    (engine.setup.empty() ? "" : engine.setup + "; ") + std::string(kScript),
                "hora", request.nonce, request.machine, step_copies(engine, request.nonce)});
  for (const StepFile& file : request.files) {
    words.push_back(file.sha256);
    words.push_back(std::to_string(file.size_bytes));
  }
  return words;
}

// When the launcher is gone, the tasks end, and with them the engine's command. It is not killed:
// Slurm would keep the step for seconds, because nothing receives the message that its tasks have
// ended.
std::chrono::milliseconds guard_timeout(const StepRequest& request) {
  return request.grace + std::chrono::seconds(5);
}

// In a directory that every host has, under an unpredictable name.
std::string step_copies(const EngineStep& engine, const std::string& nonce) {
  // In the cache by the name of a file being shipped, which others remove when it is abandoned.
  const std::string place = engine.folder.empty() ? "/tmp/.hora-" : engine.folder + "/.ship-";
  return place + nonce + "-";
}

std::string step_words_file(const std::string& copies) { return copies + "words"; }

// As if a task had sent what it needs: a task that needs nothing reads the first line alone.
std::string step_words_text(const std::string& url) {
  return url + "\n" + std::string(kStepSent) + url + "\n";
}

std::string step_copy(const std::string& copies, int file) { return copies + std::to_string(file); }

// The engine copies to the hosts of the step, so it is asked for by the number that a task has
// sent.
std::vector<std::string> copy_command(const EngineStep& engine, const StepRequest& request,
                                      int file, const std::string& step) {
  const std::string to = step_copy(step_copies(engine, request.nonce), file);
  const std::string& from = request.files[static_cast<std::size_t>(file)].path;
  std::vector<std::string> words;
  for (const std::string& word : engine.copy) {
    words.push_back(fill(word, {{"{step}", step}, {"{from}", from}, {"{to}", to}}));
  }
  return words;
}

// The nonce distinguishes our lines from the output of a shell's profile.
std::optional<std::variant<StepNeed, StepFailure>> parse_step_line(std::string_view nonce,
                                                                   std::string_view line) {
  const std::string mark = "HORA-" + std::string(nonce) + " ";
  const std::size_t at = line.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + mark.size());
  line = trim(line);
  const std::size_t blank = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, blank);
  const std::string_view rest = trim(line.substr(blank));
  if (word == "need" && is_step(rest)) return StepNeed{std::string(rest)};
  if (word != "failed") return std::nullopt;
  const std::size_t end = std::min(rest.find(' '), rest.size());
  return StepFailure{std::string(rest.substr(0, end)), visible_line(trim(rest.substr(end)))};
}

// One line, whatever the words hold: a second one would be read as another host's.
std::string step_failure(std::string_view nonce, std::string_view host, std::string_view why) {
  return "HORA-" + std::string(nonce) + " failed " + std::string(host) + " " + visible_line(why) +
         "\n";
}

}  // namespace hora::launcher
