// SPDX-License-Identifier: Apache-2.0
// What the simulated transport and hora-simulated-hosts agree on: a SOCK_SEQPACKET socket, whose
// descriptor the variable names, carries one message per host: its name, and the stream.
#pragma once

namespace hora::test {

inline constexpr const char* kHandOverVariable = "HORA_SIMULATED_HOSTS";

}  // namespace hora::test
