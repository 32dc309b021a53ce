// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/listen_options.h"

#include <algorithm>
#include <utility>

#include "launcher/text/duration.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// "any", "any:4711", "10.0.0.1", "10.0.0.1:4711", "[fe80::1]:4711"
Result<ListenSpec> parse_door(const std::string& text) {
  const Error wrong = usage(
      "--listen: expected ADDRESS, ADDRESS:PORT, any or any:PORT, with a "
      "numeric address of this machine, found " +
      quote(text));
  ListenSpec listen;
  if (parse_ip_address(text)) {
    listen.address = text;
    return listen;
  }
  if (text == "any") return listen;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  const auto port = parse_port(text.substr(colon + 1), /*zero_allowed=*/true);
  if (!port) return wrong;
  listen.port = *port;
  if (text.substr(0, colon) == "any") return listen;
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  if (!parse_ip_address(address)) return wrong;
  listen.address = address;
  return listen;
}

}  // namespace

// Refused here, before a user walks from machine to machine for a job that cannot start.
Status read_listen_options(const OptionValues& values, JobSpec& job) {
  if (!values.has("--listen")) return Ok{};
  // Each of them says that horarun reaches the hosts, or that they are known before they join.
  for (const std::string_view other :
       {"--rsh", "--transport", "--engine", "--jsrun", "--host-discovery-script", "--min-np",
        "--mpi", "--nnodes", "--nproc-per-node", "--rankfile", "--restarts", "--dry-run",
        "--check-hosts"}) {
    if (values.has(other)) return usage(std::string(other) + " cannot be used with --listen");
  }
  if (values.has("--json") && !values.has("--listen-file")) {
    return usage("--listen with --json needs --listen-file FILE: the line to type is not an event");
  }
  auto listen = parse_door(values.text("--listen"));
  if (!listen) return std::move(listen).error();
  listen->file = values.text("--listen-file");
  listen->patience = parse_duration(values.text("--start-timeout")).value_or(listen->patience);
  if (job.hosts.empty() && !values.has("-np")) {
    return usage("--listen needs -np N, or the hosts to wait for: -H a,b");
  }
  const auto with_user = std::find_if(job.hosts.begin(), job.hosts.end(),
                                      [](const Host& host) { return !host.user.empty(); });
  if (with_user != job.hosts.end()) {
    return usage("--listen: " + format_host(*with_user) +
                 " names a user; a machine runs the ranks as whoever types --join there");
  }
  job.listen = std::move(*listen);
  // No transport of the registry: main() brings it, with the machines that have dialled. A host
  // that is this machine is reached by its connection, too, since that is whose user may run there.
  job.transport = "dial";
  job.local_directly = false;
  return Ok{};
}

}  // namespace hora::launcher
