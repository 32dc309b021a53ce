// SPDX-License-Identifier: Apache-2.0
// hora-pmix serves PMIx to the ranks of one host. The agent starts it, sends the job on standard
// input, and gets the ranks' variables on standard output. It ends when standard input ends.
#include <unistd.h>

#include <cerrno>

#include "apps/pmi/job_exchange.h"
#include "apps/pmi/pmix_server.h"
#include "launcher/protocol/exit_code.h"

int main() {
  const auto job = hora::pmi::read_job("hora-pmix");
  if (!job) return hora::launcher::kExitUsage;
  hora::launcher::PmiReply reply;
  auto exchange = hora::pmi::exchange_of(*job, reply);
  if (reply.error.empty()) reply = hora::pmi::start_pmix_server(*job, std::move(exchange));
  if (!hora::pmi::write_reply(reply) || !reply.error.empty()) _exit(hora::launcher::kExitFailed);
  char byte = 0;
  // Blocks until the agent closes its end.
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  hora::pmi::stop_pmix_server();
  // Threads may wait for answers that never come.
  _exit(hora::launcher::kExitOk);
}
