// SPDX-License-Identifier: Apache-2.0
// The mpiruns that there are, and how each spells what a job asks of it.  [pure]
// docs/reference/mpi.md has the same as tables; tests/integration/mpi_launchers has each of them
// run.
#pragma once

#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Options are words as in a shell. Empty: this launcher has none.
struct MpiLauncher {
  std::string_view name;
  // What `mpirun --version` prints of it, and the first major release that the row is for.
  std::string_view mark;
  int first_major = 0;
  // Hydra passes the whole environment on; the others take names.
  bool is_hydra = false;
  bool two_dashes = false;  // long options of users get two; one is ignored or refused

  std::string_view always = {};
  std::string_view hosts = {};     // a:2,b:2
  std::string_view per_host = {};  // the slots of each host, where hosts have names alone
  std::string_view tag = {};
  std::string_view timestamp = {};
  std::string_view merge_stderr = {};
  std::string_view stdin_none = {};  // empty: mpirun itself gets /dev/null
  std::string_view stdin_all = {};
  std::string_view timeout = {};  // empty: by timeout(1)
  std::string_view unbound = {};
  std::string_view unbound_variable = {};  // the one to set to "off", where there is no option
  // The names of the files in DIR/rank.N: the words around DIR.
  std::string_view output = {};
  std::string_view output_suffix = {};
  std::string_view errors = {};
  std::string_view errors_suffix = {};
  std::string_view no_output = {};  // why there is none
  // How hosts are reached: by ssh, its program, its arguments; directly from here, this many at
  // once.
  std::string_view ssh = {};
  std::string_view ssh_agent = {};
  std::string_view ssh_arguments = {};
  std::string_view ssh_arguments_variable = {};  // where there is no option
  std::string_view ssh_from_here = {};
  std::string_view ssh_at_once = {};
  // Its daemons on the hosts look for the program, too, unless all is reached from here.
  bool daemons_need_agent = false;
  bool chooses_network = false;  // by -tcp, instead of parameters
};

// From the output of `mpirun --version`. kUsage: it is none of them.
Result<const MpiLauncher*> find_mpi_launcher(std::string_view version_text);

}  // namespace hora::launcher
