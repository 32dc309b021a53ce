// SPDX-License-Identifier: Apache-2.0
// The exchange of keys between the PMI servers of a job, by the agent's pipe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/http_store.h"

namespace hora::pmi {

// The data that the PMI servers of a job exchange through the job's rendezvous.

// Blocks; each call is of a thread of its own. There is no deadline: a fence lasts until the last
// rank comes to it, and the job's end ends this process.
class Exchange {
 public:
  // Reads the variables of the job's ranks. An error names the missing one.
  static Result<Exchange> from_environment();

  // Leaves `data` under the host's number at `place`, and returns that of all `hosts`, one after
  // the other.
  Result<std::string> gather(const std::string& place, int own_host, const std::vector<int>& hosts,
                             const std::string& data) const;
  Status publish(const std::string& key, const std::string& data) const;
  Result<std::string> wait(const std::string& key) const;

 private:
  rendezvous::HttpStore open() const;

  std::string host_;
  std::uint16_t port_ = 0;
  std::string token_;
  std::string tls_;  // the certificate's fingerprint; empty: plain HTTP
};

// How a PMI server and the agent that started it talk: see launcher/agent/pmi_server.h.

// From standard input. Nothing, with a word on standard error, when no agent started this program.
std::optional<launcher::PmiJob> read_job(const char* program);
// Writes to standard output. Returns false if the agent no longer reads.
bool write_reply(const launcher::PmiReply& reply);
// The rank asks for the end of the job: the agent kills it, and it counts as ended with this code.
bool report_abort(int rank, int exit_code);
// A rank has begun to use PMI. Only the first call counts.
void report_used();
// A sentence for the user of horarun.
bool send_note(const std::string& text);
// Where the job has several hosts: nothing for one. An error is the reply's.
std::optional<Exchange> exchange_of(const launcher::PmiJob& job, launcher::PmiReply& reply);

}  // namespace hora::pmi
