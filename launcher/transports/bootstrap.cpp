#include "launcher/transports/bootstrap.h"

#include <algorithm>

#include "launcher/transports/quoting.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Parameters: agent's SHA-256, its size, nonce, force (0 or 1), the agent's arguments.
//
// Rules for this text: it stands between single quotes for shells that disagree about them, so it
// has no single quote, backslash, exclamation mark or line feed; and it is POSIX sh (`-O` aside,
// which every sh in use has). Variables start with _ so that none of the environment is changed.
//
// Pass 0 looks for a cached agent, pass 1 asks for one, each over all directories in order.
constexpr std::string_view kScript =
    "_h=$1 _n=$2 _k=$3 _f=$4; shift 4; "
    // An account without any useful PATH: of what follows only the shell's own commands would run.
    "command -v mkdir >/dev/null 2>&1 || PATH=${PATH:+$PATH:}/usr/bin:/bin; "
    "_c=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}; _u=; _m=; _t=; "
    "_x() { [ -z \"$_t\" ] || rm -f \"$_t\"; }; "
    // Can only we (and root) replace $_d? Its parent is ours, sticky, or nothing that we may write.
    "_p() { [ -O \"$_d/..\" ] || [ -k \"$_d/..\" ] || { [ -w \"$_d/..\" ] && return 1; :; }; }; "
    "_i() { [ -x \"$_a\" ] && [ -s \"$_a\" ] && [ -O \"$_a\" ]; }; "
    // Makes $_a out of what the launcher sends, or says in $_w why not.
    "_q() { "
    "_w=\"cannot be created\"; (umask 077; mkdir -p \"$_d\") 2>/dev/null; [ -d \"$_d\" ] || return "
    "1; "
    "_w=\"is a symbolic link\"; if [ -L \"$_d\" ]; then return 1; fi; "
    "_w=\"belongs to another user\"; [ -O \"$_d\" ] || return 1; "
    "_w=\"lies where other users can replace it\"; _p || return 1; "
    "_w=\"cannot be written\"; chmod 700 \"$_d\" 2>/dev/null; _t=$_d/.ship-$_k; "
    "{ echo exit 0 >\"$_t\"; } 2>/dev/null && chmod 700 \"$_t\" 2>/dev/null || "
    "{ [ -e \"$_t\" ] && _w=\"is full\"; return 1; }; "
    "_w=\"does not let programs run (noexec)\"; \"$_t\" 2>/dev/null || return; "
    "_w=\"was not used\"; echo \"HORA-$_k need $_g $(uname -m) $_d\"; "
    "read -r _e _z || exit 1; "
    "case $_e in gz) _e=\"gzip -dc\";; raw) _e=cat;; *) exit 1;; esac; "
    "_w=\"is full, or the transfer broke off\"; "
    "head -c $_z | (exec 2>/dev/null; $_e >\"$_t\"; _r=$?; cat >/dev/null; exit $_r); _r=$?; "
    // 128 + SIGXFSZ
    "[ $_r = 153 ] && _w=\"takes no file as large as the agent (ulimit -f)\"; "
    "[ $_r = 0 ] && [ $(wc -c <\"$_t\") -eq $_n ] || return; "
    // A copy that another launcher has put there meanwhile may run on other hosts by now; a file
    // server would take it from under them. So: no name that is taken, unless what is there is bad.
    "{ [ $_f = 0 ] && { ln \"$_t\" \"$_a\" || _i; } && _x || mv -f \"$_t\" \"$_a\"; } 2>/dev/null; "
    "}; "
    "for _s in 0 1; do [ $_s$_f = 01 ] && continue; "
    "[ $_s = 1 ] && { trap _x 0; trap \"exit 1\" 1 2 13 15; _g=raw; "
    "command -v gzip >/dev/null 2>&1 && _g=gz; }; "
    "for _d in ${_c:+\"$_c/hora\"} \"${TMPDIR:-/tmp}/hora-\" /dev/shm/hora-; do "
    "case $_d in *-) _d=$_d${_u:=$(id -u)};; esac; "
    "case $_d in /*) ;; *) continue;; esac; _a=$_d/agent-$_h; "
    "if [ $_s = 1 ]; then if _q; then _t=; exec \"$_a\" agent --cache \"$_d\" --report-sha \"$@\"; "
    "fi; "
    "_x; _m=\"$_m; $_d $_w\"; "
    "elif _i && [ -O \"$_d\" ]; then "
    "[ -L \"$_d\" ] || { _p && exec \"$_a\" agent --cache \"$_d\" \"$@\"; }; fi; "
    "done; done; echo \"HORA-$_k fail$_m\"; exit 1";

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
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

Result<std::string> bootstrap_line(const BootstrapRequest& request) {
  if (!is_word(request.sha256) || !is_word(request.nonce)) {
    return make_error(ErrorCode::kUsage, "the agent's hash and the nonce are letters and digits");
  }
  std::string line = "exec /bin/sh -c '" + std::string(kScript) + "' hora " + request.sha256 + ' ' +
                     std::to_string(request.size_bytes) + ' ' + request.nonce +
                     (request.force ? " 1" : " 0");
  std::vector<std::string> arguments;
  if (!request.bundle_hash.empty()) {
    arguments.push_back("--bundle-hash");
    arguments.push_back(request.bundle_hash);
  }
  arguments.insert(arguments.end(), request.arguments.begin(), request.arguments.end());
  for (const std::string& argument : arguments) {
    auto quoted = quote_for_any_shell(argument);
    if (!quoted) return std::move(quoted).error().with_context("the agent's arguments");
    line += ' ';
    line += *quoted;
  }
  return line;
}

std::string transfer_header(bool gzip, std::uint64_t bytes) {
  return (gzip ? "gz " : "raw ") + std::to_string(bytes) + '\n';
}

std::string transfer_refusal() { return "no 0\n"; }

void BootstrapDialogue::keep_noise(std::string_view bytes) {
  noise_.append(bytes);
  if (noise_.size() > MagicFinder::kMaxNoise) {
    noise_.erase(0, noise_.size() - MagicFinder::kMaxNoise);
  }
}

BootstrapDialogue::Event BootstrapDialogue::parse_marker(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.substr(0, 5) == "need ") {
    line.remove_prefix(5);
    Need need;
    need.gzip = take_word(line) == "gz";
    need.machine = take_word(line);
    need.directory = std::string(line);
    asked_ = true;
    return need;
  }
  if (line.substr(0, 4) == "fail") {
    line.remove_prefix(4);
    if (line.substr(0, 2) == "; ") line.remove_prefix(2);
    return Failed{line.empty() ? "there is no directory to try" : std::string(line)};
  }
  keep_noise(line);  // not ours after all
  return Listening{};
}

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
      // Either may straddle two reads: keep as much as could be the start of one.
      const std::size_t longest = std::max(kAgentMagic.size(), marker_.size()) - 1;
      if (pending_.size() > longest) {
        const std::size_t done = pending_.size() - longest;
        keep_noise(std::string_view(pending_).substr(0, done));
        pending_.erase(0, done);
      }
      return Listening{};
    }
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
