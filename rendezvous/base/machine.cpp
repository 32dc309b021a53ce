// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/machine.h"

namespace hora {

std::string_view own_machine() { return HORA_MACHINE; }

}  // namespace hora
