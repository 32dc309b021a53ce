// SPDX-License-Identifier: Apache-2.0
// How a PMI server and the agent that started it talk: see launcher/agent/pmi_server.h.
#pragma once

#include <optional>
#include <string>

#include "apps/pmi/exchange.h"
#include "launcher/protocol/messages.h"

namespace hora::pmi {

// From standard input. Nothing, with a word on standard error, when no agent started this program.
std::optional<launcher::PmiJob> read_job(const char* program);
// Writes to standard output. Returns false if the agent no longer reads.
bool write_reply(const launcher::PmiReply& reply);
// The rank asks for the end of the job: the agent kills it, and it counts as ended with this code.
bool tell_abort(int rank, int exit_code);
// A rank has begun to use PMI. Only the first call counts.
void tell_used();
// A sentence for the user of horarun.
bool tell_note(const std::string& text);
// Where the job has several hosts: nothing for one. An error is the reply's.
std::optional<Exchange> exchange_of(const launcher::PmiJob& job, launcher::PmiReply& reply);

}  // namespace hora::pmi
