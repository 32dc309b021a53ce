// SPDX-License-Identifier: Apache-2.0
// The first thing that runs on a remote host: one line of shell that starts a cached agent, or asks
// the launcher to send one, checks it and starts that. docs/flows shows the dialogue.
#include "launcher/transports/bootstrap.h"

#include <algorithm>

#include "launcher/transports/remote_command.h"

namespace hora::launcher {

namespace {

// Parameters: a nonce, force (0 or 1); for each processor its name, the agent's SHA-256, its size
// in bytes and the runtime's parts (or -); a dash, and the agent's arguments.
//
// Rules for this text: it is in single quotes for shells that disagree about them, so it has no
// single quote, backslash, exclamation mark or line feed. It is POSIX sh, except for `-O`, which
// every sh in use has. Variables start with _ so that no variable of the environment changes.
// Pass 0 looks for a cached agent, pass 1 asks for one; each goes through all directories in order.
constexpr std::string_view kScript =
    "_k=$1 _f=$2 _h=; shift 2; "
    // An account may have no useful PATH; then only the shell's own commands would run.
    "command -v mkdir >/dev/null 2>&1 || PATH=${PATH:+$PATH:}/usr/bin:/bin; "
    // The first build that is for this machine; the very first where there is no uname.
    "_m=${_m:-$(uname -m 2>/dev/null)}; until [ \"$1\" = - ]; do "
    "[ -z \"$_h\" ] && [ \"${_m:-$1}\" = \"$1\" ] && _h=$2 _n=$3 _b=$4; shift 4; done; shift; "
    "[ -n \"$_h\" ] || { echo \"HORA-$_k machine $_m\"; exit 1; }; "
    "[ $_b = - ] || set -- --parts $_b \"$@\"; "
    "_c=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; _u=; _t=; "
    "_x() { [ -z \"$_t\" ] || rm -f \"$_t\"; }; "
    // _p: can only we (and root) replace $_d? Its parent is ours, is sticky, or is not writable for
    // us.
    "_p() { [ -O \"$_d/..\" ] || [ -k \"$_d/..\" ] || { [ -w \"$_d/..\" ] && return 1; :; }; }; "
    // _i: an agent at $_a counts only if it is executable, not empty and ours.
    "_i() { [ -x \"$_a\" ] && [ -s \"$_a\" ] && [ -O \"$_a\" ]; }; "
    // _q: makes $_a out of what the launcher sends, or sets $_w to the code of why it cannot (see
    // kReasons). $_w always holds the reason that applies if the next command fails.
    "_q() { "
    "_w=create; (umask 077; mkdir -p \"$_d\") 2>/dev/null; [ -d \"$_d\" ] || return 1; "
    "_w=link; if [ -L \"$_d\" ]; then return 1; fi; "
    "_w=owner; [ -O \"$_d\" ] || return 1; "
    "_w=parent; _p || return 1; "
    "_w=write; chmod 700 \"$_d\" 2>/dev/null; _t=$_d/.ship-$_k; "
    "{ echo exit 0 >\"$_t\"; } 2>/dev/null && chmod 700 \"$_t\" 2>/dev/null || "
    "{ [ -e \"$_t\" ] && _w=full; return 1; }; "
    // Run the file before asking for the agent: a noexec mount shows here and costs no transfer.
    "_w=noexec; \"$_t\" 2>/dev/null || return; "
    "echo \"HORA-$_k need $_g $_m $_d\"; "
    "read -r _e _z || exit 1; "
    // Any other answer is the launcher's refusal (see transfer_refusal()).
    "case $_e in gz) _e=\"gzip -dc\";; raw) _e=cat;; *) exit 1;; esac; "
    "_w=transfer; "
    // Read exactly $_z bytes even if unpacking fails, so that the rest does not reach the next
    // command.
    "head -c $_z | (exec 2>/dev/null; $_e >\"$_t\"; _r=$?; cat >/dev/null; exit $_r); _r=$?; "
    // 153 is 128 + SIGXFSZ.
    "[ $_r = 153 ] && _w=limit; "
    "[ $_r = 0 ] && [ $(wc -c <\"$_t\") -eq $_n ] || return; "
    // Another launcher may have put a copy there meanwhile, which may already run on other hosts;
    // on a file server a replacement would remove it under them. So `ln` only takes a free name,
    // and `mv -f` replaces a file only if it is bad or force asks for it.
    "{ [ $_f = 0 ] && { ln \"$_t\" \"$_a\" || _i; } && _x || mv -f \"$_t\" \"$_a\"; } 2>/dev/null; "
    "}; "
    // Pass 0 is skipped under force. Pass 1 removes its temporary file on every way out.
    "for _s in 0 1; do [ $_s$_f = 01 ] && continue; "
    "[ $_s = 1 ] && { trap _x 0; trap \"exit 1\" 1 2 13 15; _g=raw; "
    "command -v gzip >/dev/null 2>&1 && _g=gz; }; "
    // The user's cache comes first, as it survives a reboot; /dev/shm helps where the disks are
    // full or noexec.
    "for _d in ${_c:+\"$_c/hora\"} \"${TMPDIR:-/tmp}/hora-\" /dev/shm/hora-; do "
    "case $_d in *-) _d=$_d${_u:=$(id -u)};; esac; "
    "case $_d in /*) ;; *) continue;; esac; _a=$_d/agent-$_h; "
    "if [ $_s = 1 ]; then if _q; then _t=; exec \"$_a\" agent --cache \"$_d\" --report-sha \"$@\"; "
    "fi; "
    "_x; echo \"HORA-$_k unfit $_w $_d\"; "
    "elif _i && [ -O \"$_d\" ]; then "
    "[ -L \"$_d\" ] || { _p && exec \"$_a\" agent --cache \"$_d\" \"$@\"; }; fi; "
    "done; done; echo \"HORA-$_k fail\"; exit 1";

// Whether a directory without free space explains the reason.
enum class FreeSpace { kLacks, kMayLack, kHas };

// What the script reports about a directory, as the word of the "unfit" line and as text.
struct ReasonRow {
  std::string_view word;
  std::string_view text;
  FreeSpace space = FreeSpace::kHas;
};
constexpr ReasonRow kReasons[] = {
    {"create", "cannot be created", FreeSpace::kMayLack},  // mkdir fails on a full disk, too
    {"link", "is a symbolic link"},
    {"owner", "belongs to another user"},
    {"parent", "lies where other users can replace it", FreeSpace::kMayLack},
    {"write", "cannot be written"},
    {"full", "is full", FreeSpace::kLacks},
    {"noexec", "does not let programs run (noexec)"},
    {"transfer", "is full, or the transfer broke off", FreeSpace::kLacks},
    {"limit", "does not allow a file as large as the agent (ulimit -f)", FreeSpace::kMayLack},
    {"", "cannot be used"},  // a word of another version
};

const ReasonRow& row_of(const UnfitDirectory& directory) {
  return *std::find_if(std::begin(kReasons), std::end(kReasons) - 1,
                       [&](const ReasonRow& each) { return each.word == directory.reason; });
}

// A host that lists more than the script tries does not run the script.
constexpr std::size_t kMostUnfit = 8;

// Letters, digits and underscores.
bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Takes the word before the next blank off `line`.
std::string take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  std::string word(line.substr(0, end));
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

}  // namespace

// `exec` leaves no login shell between sshd and the agent. Where sh reads the line, a second one
// would only cost time.
Result<std::string> bootstrap_line(const BootstrapRequest& request) {
  if (!is_word(request.nonce)) {
    return make_error(ErrorCode::kUsage, "the nonce is letters and digits");
  }
  const std::string script(kScript);
  std::string line = request.for_sh ? "set -- " : "exec /bin/sh -c '_m=; " + script + "' hora ";
  line += request.nonce + (request.force ? " 1" : " 0");
  for (const std::string& word : bootstrap_words(request)) {
    auto quoted = quote_for_any_shell(word);
    if (!quoted) return std::move(quoted).error().with_context("the agent's arguments");
    line += ' ' + *quoted;
  }
  if (request.for_sh) line += "; " + script;
  return line;
}

std::vector<std::string> bootstrap_words(const BootstrapRequest& request) {
  std::vector<std::string> words;
  for (const AgentBuild& build : request.builds) {
    words.insert(words.end(), {build.machine, build.sha256, std::to_string(build.size_bytes),
                               build.parts.empty() ? "-" : build.parts});
  }
  words.emplace_back("-");
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  return words;
}

// The launcher may run anything here anyway, but a name with a slash would be a file outside of the
// cache by mistake.
std::optional<CachedAgent> cached_agent(const std::vector<std::string>& words,
                                        std::string_view machine) {
  constexpr std::size_t kBuild = 4;
  std::optional<CachedAgent> found;
  std::size_t at = 0;
  for (; at + kBuild < words.size() && words[at] != "-"; at += kBuild) {
    if (found || words[at] != machine || !is_word(words[at + 1])) continue;
    found.emplace().name = "agent-" + words[at + 1];
    const std::string& parts = words[at + 3];
    if (parts != "-") found->arguments = {"--parts", parts};
  }
  if (!found || at >= words.size() || words[at] != "-") return std::nullopt;
  found->arguments.insert(found->arguments.end(),
                          words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  return found;
}

std::string transfer_header(bool gzip, std::uint64_t bytes) {
  return (gzip ? "gz " : "raw ") + std::to_string(bytes) + '\n';
}

std::string transfer_refusal() { return "no 0\n"; }

// Freeing space is the whole advice only if every directory lacks space or may lack it.
bool is_disk_full(const std::vector<UnfitDirectory>& directories) {
  bool full = false;
  for (const UnfitDirectory& each : directories) {
    const FreeSpace space = row_of(each).space;
    if (space == FreeSpace::kHas) return false;
    full = full || space == FreeSpace::kLacks;
  }
  return full;
}

std::string unfit_text(const std::vector<UnfitDirectory>& directories) {
  if (directories.empty()) return "there is no directory to try";
  std::string text;
  for (const UnfitDirectory& each : directories) {
    text += (text.empty() ? "" : "; ") + each.path + " " + std::string(row_of(each).text);
  }
  return text;
}

// Keeps the last bytes of what the host printed (banners of login scripts, say): when no agent
// starts, these usually explain it.
void BootstrapDialogue::keep_noise(std::string_view bytes) {
  noise_.append(bytes);
  if (noise_.size() > MagicFinder::kMaxNoise) {
    noise_.erase(0, noise_.size() - MagicFinder::kMaxNoise);
  }
}

// The nonce in the marker keeps output of a login script from being taken for the dialogue.
BootstrapDialogue::Event BootstrapDialogue::parse_marker(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view whole = line;
  const std::string kind = take_word(line);
  if (kind == "need") {
    Need need;
    need.gzip = take_word(line) == "gz";
    need.machine = take_word(line);
    // The directory comes last on the line, because it may contain blanks.
    need.directory = std::string(line);
    asked_ = true;
    return need;
  }
  if (kind == "unfit") {
    std::string reason = take_word(line);
    if (unfit_.size() < kMostUnfit) unfit_.push_back({std::string(line), std::move(reason)});
    return Listening{};
  }
  if (kind == "machine") return OtherMachine{take_word(line)};
  if (kind == "fail") return Failed{std::move(unfit_)};
  keep_noise(whole);  // not ours after all
  return Listening{};
}

// Looks for the agent's magic, after which all bytes are frames, or a marker line with a request or
// a failure. Everything else is noise.
BootstrapDialogue::Event BootstrapDialogue::feed(std::string_view bytes) {
  pending_.append(bytes);
  for (;;) {
    const std::size_t magic = pending_.find(kAgentMagic);
    const std::size_t marker = pending_.find(marker_);
    if (magic < marker) {
      keep_noise(std::string_view(pending_).substr(0, magic));
      Started started{pending_.substr(magic + kAgentMagic.size())};
      pending_.clear();
      return started;
    }
    if (marker == std::string::npos) {
      // Either may straddle two reads: keep as many bytes as could be the start of one.
      const std::size_t longest = std::max(kAgentMagic.size(), marker_.size()) - 1;
      if (pending_.size() > longest) {
        const std::size_t done = pending_.size() - longest;
        keep_noise(std::string_view(pending_).substr(0, done));
        pending_.erase(0, done);
      }
      return Listening{};
    }
    // A marker line without an end is bounded as well, so a host cannot make the launcher buffer
    // for ever.
    const std::size_t end = pending_.find('\n', marker);
    if (end == std::string::npos && pending_.size() - marker <= MagicFinder::kMaxNoise) {
      return Listening{};
    }
    keep_noise(std::string_view(pending_).substr(0, marker));
    const std::string line = pending_.substr(
        marker + marker_.size(), std::min(end, pending_.size()) - marker - marker_.size());
    pending_.erase(0, std::min(end, pending_.size() - 1) + 1);
    Event event = parse_marker(line);
    if (!std::holds_alternative<Listening>(event)) return event;
  }
}

}  // namespace hora::launcher
