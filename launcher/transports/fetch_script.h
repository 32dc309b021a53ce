// SPDX-License-Identifier: Apache-2.0
// How a host that lacks the agent fetches it from one that has it: the launcher's answer to "need"
// instead of the agent, and the host's messages after it.  [pure]
// docs/flows/bootstrap.md is the page for it; a change edits both.
//
//   launcher: "sh <commands>\n", once
//   launcher: "from <number> <port> <token> <address>...\n"
//   remote:   "HORA-<nonce> open <number>\n"   it is about to read; with bash, it is connected
//   remote:   "HORA-<nonce> got <number>\n"    it has the agent, checked by its SHA-256
//   remote:   "HORA-<nonce> miss <number> <reason>\n"; number 0: no source is left
//   launcher: another "from", at any time; or "here 0\n" after "got"; or what it would have
//             answered without all this (bootstrap.h)
//
// What a source sends is no more than the agent's bytes (agent/image_server.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// Where a host that lacks the agent can fetch it.
struct AgentOffer {
  int number = 0;  // distinguishes the attempts of a host; from 1
  std::vector<std::string> addresses;
  int port = 0;
  std::string token;  // letters and digits
  friend bool operator==(const AgentOffer&, const AgentOffer&) = default;
};

// A host's messages about an attempt.
struct FetchNews {
  enum class Kind { kOpen, kGot, kMissed };
  Kind kind = Kind::kOpen;
  int number = 0;
  std::string reason;  // of kMissed: text for people
};

// The answers of the launcher.
std::string fetch_script();
std::string fetch_order(const AgentOffer& offer);
std::string fetch_accepted();

// A line without marker and line feed; nothing if it is another one.
std::optional<FetchNews> read_fetch_news(std::string_view line);

}  // namespace hora::launcher
