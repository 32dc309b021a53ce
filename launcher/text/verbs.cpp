// SPDX-License-Identifier: Apache-2.0
// A new verb has its row here and its parser in launcher/options/command_line.cpp; everything that
// people read follows from the row.
#include "launcher/text/verbs.h"

#include <algorithm>
#include <iterator>

namespace hora::launcher {

namespace {

constexpr VerbRow kVerbs[] = {
    {"bundle-report", "RECORD.json -o OUT.json [options]",
     "collect all that is known about a job in one file"},
    {"cache", "ls|clean [options]", "list or remove the runtimes cached on hosts", "ls clean"},
    {"completion", "bash|zsh|fish", "print a completion script for that shell", "bash zsh fish"},
    {"doctor", "[options]", "check whether hosts can run jobs"},
    {"explain", "[code]", "explain a failure, a finding of doctor, an exit code or a signal",
     "events"},
    {"help", "[verb]", "the same as --help"},
    {"k8s", "[options] program [arguments]", "run a job in Kubernetes pods"},
    {"rendezvous", "[options]", "run a standalone rendezvous server"},
    {"timeline", "merge FILE... -o OUT", "merge the traces of several ranks", "merge"},
    {"version", "", "the same as --version"},
};

}  // namespace

std::span<const VerbRow> verbs() { return kVerbs; }

bool is_verb(std::string_view word) {
  return std::any_of(std::begin(kVerbs), std::end(kVerbs),
                     [word](const VerbRow& row) { return row.name == word; });
}

std::vector<std::string> verb_names() {
  std::vector<std::string> out;
  for (const VerbRow& row : kVerbs) out.emplace_back(row.name);
  return out;
}

}  // namespace hora::launcher
