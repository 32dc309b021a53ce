// SPDX-License-Identifier: Apache-2.0
// The PMI-1 requests of the ranks of one host, and the answers: lines of words "name=value", the
// first of which is the command. As MPICH's "simple" client speaks it. [pure] The keys that a rank
// puts are its host's until the next barrier; then the hosts exchange them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"

namespace hora::pmi {

class Pmi1Protocol {
 public:
  explicit Pmi1Protocol(const launcher::PmiJob& job);

  // The answer to one line of `rank`, with its end; empty: none, or one that comes with a barrier.
  std::string handle(int rank, std::string_view line);

  // Every rank of this host waits in a barrier.
  bool all_here() const { return waiting_ == ranks_here_; }
  // Takes the keys that ranks of this host have put since the last barrier.
  std::string take_updates();
  // Adds the keys of all hosts; returns false if the text is malformed.
  bool add_updates(std::string_view updates);
  // Ends the barrier and returns the line to send to each waiting rank.
  std::string end_barrier();

 private:
  launcher::PmiJob job_;
  std::string space_;  // the name of the only key-value space
  int size_ = 0;
  int ranks_here_ = 0;
  int waiting_ = 0;
  std::map<std::string, std::string> values_;
  std::vector<std::pair<std::string, std::string>> updates_;
  std::map<int, bool> in_long_command_;  // by rank: lines follow until "endcmd"
};

// The exit code with which a rank wants the job to end by this line; nothing: it is another one.
std::optional<int> abort_code(std::string_view line);

// Which ranks share a host, as MPICH reads it: "(vector,(0,2,4))" is two hosts of four ranks each.
std::string process_mapping(const std::vector<launcher::PmiHost>& hosts);

}  // namespace hora::pmi
