// SPDX-License-Identifier: Apache-2.0
// The build names the processor, and not uname(): a program that is emulated, or runs on a kernel
// of another kind, is still for the processor that it was compiled for.
#include "rendezvous/base/machine.h"

namespace hora {

std::string_view own_machine() { return HORA_MACHINE; }

}  // namespace hora
