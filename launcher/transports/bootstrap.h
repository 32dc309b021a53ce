// SPDX-License-Identifier: Apache-2.0
// Starts the agent on a host that has nothing of ours: the one command line for the remote shell,
// and the conversation that follows on its stdin and stdout.  [pure]
// docs/flows/bootstrap.md is the page for both; a change edits it.
//
//   remote: noise*  <agent's magic>                          it was in the cache
//   remote: noise*  "HORA-<nonce> need <gz|raw> <machine> <directory>\n"
//   launcher:       "<gz|raw> <bytes>\n" <that many bytes>   or "no 0\n"
//   remote:         the agent's magic, or, when a directory cannot hold the agent,
//                   "HORA-<nonce> unfit <reason> <directory>\n" and a "need" for the next one
//   remote:         "HORA-<nonce> fail\n" after the last "unfit"
//   remote: noise*  "HORA-<nonce> machine <machine>\n"        none of the agents is for it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/protocol/frame.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The agent for one kind of processor.
struct AgentBuild {
  std::string machine;           // as `uname -m` names it on the hosts
  std::string path;              // the static agent on this machine
  std::string sha256;            // lower-case hex, of that file; names the cache entry
  std::string parts;             // of the runtime, as part_list_text(); may be empty
  std::uint64_t size_bytes = 0;  // of the file
};

struct BootstrapRequest {
  std::vector<AgentBuild> builds;      // a host takes the one for it; one without uname the first
  std::string nonce;                   // letters and digits: marks our lines in what a shell prints
  bool force = false;                  // do not use a cached agent: it proved to be broken
  std::vector<std::string> arguments;  // appended to the agent's argv
  // `sh -c` gets the line, not a login shell, and has set $_m to the name of its processor.
  bool for_sh = false;
};

// The line for the user's login shell, whichever it is. Needs /bin/sh, head, mkdir, chmod, mv,
// rm, wc and cat there; uses gzip when it is there. Errors: an argument that cannot be quoted.
Result<std::string> bootstrap_line(const BootstrapRequest& request);

// The same to start an agent in the cache without a shell: the words of the line, as the script
// gets them after the first two.
std::vector<std::string> bootstrap_words(const BootstrapRequest& request);
struct CachedAgent {
  std::string name;                    // of its file
  std::vector<std::string> arguments;  // after "agent --cache DIRECTORY"
};
// The agent that the script would take on such a machine. Nothing: there is no build for it.
std::optional<CachedAgent> cached_agent(const std::vector<std::string>& words,
                                        std::string_view machine);

// What the launcher answers to "need": the header of the transfer, or the refusal.
std::string transfer_header(bool gzip, std::uint64_t bytes);
std::string transfer_refusal();

// A directory of a host that cannot hold the agent.
struct UnfitDirectory {
  std::string path;
  std::string reason;  // a word of the script
};

// Whether the host lacks free space, and nothing else.
bool is_disk_full(const std::vector<UnfitDirectory>& directories);
// "/home/x/.cache/hora is full; /tmp/hora-7 cannot be written"
std::string unfit_text(const std::vector<UnfitDirectory>& directories);

// Follows the remote side's stdout until the agent has started or cannot.
class BootstrapDialogue {
 public:
  struct Listening {};  // more bytes are needed
  struct Need {         // answer with transfer_header() and the agent, or transfer_refusal()
    bool gzip = false;
    std::string machine;  // `uname -m`; empty: the host has none
    std::string directory;
  };
  struct OtherMachine {  // the request has no build for it
    std::string machine;
  };
  struct Failed {
    std::vector<UnfitDirectory> directories;  // all that were tried, in order
  };
  struct Started {
    std::string rest;  // what followed the magic
  };
  using Event = std::variant<Listening, Need, OtherMachine, Failed, Started>;

  explicit BootstrapDialogue(std::string_view nonce)
      : marker_("HORA-" + std::string(nonce) + " ") {}

  // Call with new bytes, then with none until Listening comes back: one read may hold more than
  // one event. Do not call it after OtherMachine, Failed or Started.
  Event feed(std::string_view bytes);

  // What else the shell printed: its last MagicFinder::kMaxNoise bytes or so.
  std::string noise() const { return noise_ + pending_; }
  bool asked() const { return asked_; }  // a Need came

 private:
  Event parse_marker(std::string_view line);
  void keep_noise(std::string_view bytes);

  std::string marker_;
  std::string pending_;
  std::string noise_;
  std::vector<UnfitDirectory> unfit_;
  bool asked_ = false;
};

}  // namespace hora::launcher
