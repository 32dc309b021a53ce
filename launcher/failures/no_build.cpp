// SPDX-License-Identifier: Apache-2.0
// Said by two: the transport, when the host's script finds no agent for its processor, and the
// fleet, when an agent that was already there is for another one.
#include "launcher/failures/no_build.h"

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

Failure no_build_for(std::string_view machine, std::string_view there_are) {
  const std::string name(machine);
  return {std::string(failure::kProcessor),
          "its processor is " + name + ", and this installation has builds for " +
              std::string(there_are) + " only",
          "add a build for " + name + ": scripts/build release --arch " + name +
              " where Hora is built, then install again; or leave the host out"};
}

}  // namespace hora::launcher
