// SPDX-License-Identifier: Apache-2.0
// The commands travel by standard input, and only to hosts that are to fetch: those that have the
// agent get a start script as short as ever. The host's shell reads the launcher's next line while
// a process in the background fetches, so every deadline is the launcher's, and its end is seen at
// once.
#include "launcher/transports/fetch_script.h"

#include <algorithm>
#include <charconv>

namespace hora::launcher {

namespace {

// POSIX sh, run by the start script within _q (bootstrap.cpp), whose variables it knows: the nonce
// $_k, force $_f, hash $_h and size $_n of the agent, its place $_a, and the file $_t to be made.
//
// It is one line, which `read` takes whole or not at all. A count of bytes would be no help, as
// busybox's head reads beyond it.
//
// What fetches is a process group of its own (setsid), so that one signal ends all of it, at any
// moment. Nothing that other users see has the token: no argv, and no program is started to say it
// (`echo` is every shell's own, `printf` is not).
constexpr std::string_view kScript =
    // Also when the start script ends: its trap calls _x.
    "_stop() { [ -z \"$_p\" ] || { kill -9 $_p -$_p; wait $_p; } 2>/dev/null; _p=; }; "
    "_x() { _stop; [ -z \"$_t\" ] || rm -f \"$_t\"; }; "
    "_have() { command -v $1 >/dev/null 2>&1; }; "
    // Connects to host $0, port $1, sends its standard input, and becomes the reader.
    "_v='exec 3<>\"/dev/tcp/$0/$1\" && cat >&3 && echo \"$3\" >&4 && exec head -c $2 <&3 4>&-'; "
    "_y='import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); "
    "s.sendall(sys.stdin.buffer.read()); "
    "sys.stdout.buffer.write(s.makefile(\"rb\").read(int(sys.argv[3])))'; "
    // One attempt: number, port, token and addresses come by standard input. Whatever answers
    // there, no more than about twice the agent's size is written.
    "_o='read -r o p y i; w=reach; for a in $i; do "
    "echo \"HORA-IMAGE-1 $y\" 2>/dev/null | { case $l in "
    "bash) bash --norc -c \"$v\" \"$a\" $p $n \"HORA-$k open $o\";; "
    "*) echo \"HORA-$k open $o\" >&4; ulimit -c 0; ulimit -f $((n / 512 + 1)); exec 4>&-; "
    "case $l in nc) nc -w 5 \"$a\" $p;; *) python3 -I -c \"$v\" \"$a\" $p $n;; esac;; "
    "esac; } 4>&1 >\"$t\" 2>/dev/null; z=$(wc -c <\"$t\"); "
    "if [ $z -eq $n ]; then w=hash; "
    "case $(sha256sum <\"$t\") in $h*) echo \"HORA-$k got $o\"; exit;; esac; "
    "elif [ $z -gt 0 ]; then w=short; fi; done; echo \"HORA-$k miss $o $w\"'; "
    "_fetch() { _p= _l=; "
    "_have sha256sum && _have setsid && "
    "for _i in bash nc python3; do _have $_i && { _l=$_i; break; }; done; "
    "[ -n \"$_l\" ] || echo \"HORA-$_k miss 0 tools\"; "
    "[ \"$_l\" = bash ] || _v=$_y; "
    "while read -r _e _z || exit 1; do "
    "case $_e in here) return;; esac; "
    // A killed process may hold the file open for a moment longer, and a program that is open for
    // writing cannot be started: the next one is another file.
    "[ -z \"$_p\" ] || { _stop; rm -f \"$_t\"; : >\"$_t\" && chmod 700 \"$_t\"; } 2>/dev/null; "
    "case $_e in from) ;; *) return;; esac; "
    // Hosts share the folder, and another one has put it there: what the first pass would start.
    "if [ $_f = 0 ] && _i; then rm -f \"$_t\"; _t=; echo \"HORA-$_k got ${_z%% *}\"; continue; fi; "
    "echo \"$_z\" 2>/dev/null | k=$_k l=$_l n=$_n h=$_h t=$_t v=$_v setsid /bin/sh -c \"$_o\" & "
    "_p=$!; "
    "done; }; _fetch; [ -z \"$_p\" ] || { wait $_p; _p=; } 2>/dev/null";

struct ReasonRow {
  std::string_view word;
  std::string_view text;
};
constexpr ReasonRow kReasons[] = {
    {"tools", "it lacks sha256sum or setsid, or has none of bash, nc and python3"},
    {"reach", "it could not reach it"},
    {"short", "the transfer was cut short"},
    {"hash", "what came has another SHA-256"},
};

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
  return number;
}

bool take_word(std::string_view& line, std::string_view word) {
  if (line.substr(0, word.size()) != word) return false;
  line.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string fetch_script() { return "sh " + std::string(kScript) + '\n'; }

std::string fetch_order(const AgentOffer& offer) {
  std::string line =
      "from " + std::to_string(offer.number) + ' ' + std::to_string(offer.port) + ' ' + offer.token;
  for (const std::string& address : offer.addresses) line += ' ' + address;
  return line + '\n';
}

std::string fetch_accepted() { return "here 0\n"; }

std::optional<FetchNews> read_fetch_news(std::string_view line) {
  FetchNews news;
  if (take_word(line, "open ")) {
    news.kind = FetchNews::Kind::kOpen;
  } else if (take_word(line, "got ")) {
    news.kind = FetchNews::Kind::kGot;
  } else if (take_word(line, "miss ")) {
    news.kind = FetchNews::Kind::kMissed;
  } else {
    return std::nullopt;
  }
  const auto number = take_number(line);
  if (!number) return std::nullopt;
  news.number = *number;
  if (news.kind != FetchNews::Kind::kMissed)
    return line.empty() ? std::optional(news) : std::nullopt;
  if (!take_word(line, " ")) return std::nullopt;
  const auto row = std::find_if(std::begin(kReasons), std::end(kReasons),
                                [&line](const ReasonRow& each) { return each.word == line; });
  news.reason = row == std::end(kReasons) ? "it could not fetch it" : std::string(row->text);
  return news;
}

}  // namespace hora::launcher
