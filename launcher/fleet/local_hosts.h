// SPDX-License-Identifier: Apache-2.0
// Whether a host is this machine, and whether hosts are machines.
#pragma once

#include <optional>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// For each host: true when its name is, or resolves to, an address of this machine, and no other
// user is asked for. Names that need a resolver are looked up side by side; one that cannot be
// resolved is remote (it may be an alias of ~/.ssh/config). Blocks for as long as the system's
// resolver does.
std::vector<bool> find_local_hosts(const std::vector<Host>& hosts);

// The same by the name alone, without a resolver: misses this machine under another name.
bool is_named_as_this_machine(const Host& host);

// Whether each name stands for a machine. A batch system may have several nodes on one, and a
// command of the user's own (--rsh) decides what a host is: a container, another root, an account.
bool hosts_are_machines(const JobSpec& spec);

// The error of a list that has one machine under several names. `hellos` are those of `hosts`; one
// that is missing is not compared.
Status check_one_name_each(const std::vector<Host>& hosts,
                           const std::vector<std::optional<Hello>>& hellos);

}  // namespace hora::launcher
