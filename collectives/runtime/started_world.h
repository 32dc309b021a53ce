// SPDX-License-Identifier: Apache-2.0
// The environment of a world that another launcher started: torchrun, srun, jsrun, an mpirun whose
// library is not here. [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/runtime/settings.h"

namespace hora::collectives {

struct StartedWorld {
  std::string launcher;  // as a user calls it
  std::string variable;  // which has the size
  int rank = 0;
  int size = 1;
  std::string first_host;  // reaches the host of rank 0; empty: nothing says where that is
  // Equal in all processes of this world, and different in any other.
  std::string identity;
  std::vector<std::uint16_t> reserved_ports;  // which the launcher keeps free for this world

  // "WORLD_SIZE=4 says that torchrun started this process as rank 1 of 4"
  std::string described() const;
};

// The innermost world of more than one that the environment describes completely enough to know
// this process's rank; nothing where the process is alone. A world with known rank and size, but an
// unknown rank 0, is found as well: ignoring it would train many models of one.
std::optional<StartedWorld> find_started_world(const Variables& variables);

// Whether torchrun started this process. It may itself run under srun or mpirun, once per node;
// their variables are then about the nodes.
bool is_started_by_torchrun(const Variables& variables);

// The first host of a list as Slurm writes it: "sn[03-07,9],login" begins with "sn03".
std::string first_of_nodelist(std::string_view list);

// Where rank 0 of this world may listen, best first. The launcher's own ports, or some below the
// range that Linux gives to outgoing connections; all processes compute the same ones.
std::vector<std::uint16_t> meeting_ports(const StartedWorld& world);

// Distinguishes worlds that meet at one address. Not a secret: any reader of the environment can
// compute it. HORA_RENDEZVOUS_TOKEN, where the user has set it for all ranks, replaces it.
std::string meeting_token(const StartedWorld& world);

}  // namespace hora::collectives
