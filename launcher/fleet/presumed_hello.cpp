// SPDX-License-Identifier: Apache-2.0
// Not all of what describe_machine() finds: GPUs, addresses and the user are for the report, which
// asks the agent (StaticRun::known_hello).
#include "launcher/fleet/presumed_hello.h"

#include <utility>

#include <gnu/libc-version.h>

#include "rendezvous/base/machine.h"

namespace hora::launcher {

std::optional<PresumedHello> presume_hello() {
  auto loopback = loopback_interface();
  if (!loopback) return std::nullopt;
  PresumedHello presumed;
  presumed.port = reserve_port();
  if (presumed.port.port == 0) return std::nullopt;
  Hello& hello = presumed.hello;
  hello.version = HORA_VERSION;
  hello.hostname = host_name();
  hello.boot_id = machine_id();
  hello.machine = own_machine();
  // This process has loaded the one that the ranks will load.
  hello.c_library = std::string("glibc ") + ::gnu_get_libc_version();
  hello.interfaces = {std::move(*loopback)};
  hello.free_port = presumed.port.port;
  return presumed;
}

}  // namespace hora::launcher
