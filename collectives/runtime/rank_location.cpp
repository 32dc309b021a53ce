// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/rank_location.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {

std::optional<std::string> process_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// The boot id distinguishes machines; /dev/shm distinguishes containers on one machine, which do
// not share memory unless they share that mount.
std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared_memory {};
  stat("/dev/shm", &shared_memory);
  return boot + "/" + std::to_string(shared_memory.st_dev) + "/" +
         std::to_string(shared_memory.st_ino);
}

LauncherPlace place_among(const std::vector<std::string>& machines, int rank) {
  std::vector<std::int32_t> first_of_host;
  std::vector<std::int32_t> local_ranks;
  for (const std::string& machine : machines) {
    // A host is represented by its first rank.
    const auto first = std::find(machines.begin(), machines.end(), machine);
    first_of_host.push_back(static_cast<std::int32_t>(first - machines.begin()));
    local_ranks.push_back(static_cast<std::int32_t>(
        std::count(first_of_host.begin(), first_of_host.end() - 1, first_of_host.back())));
  }
  const auto self = static_cast<std::size_t>(rank);
  LauncherPlace place;
  place.rank = rank;
  place.size = static_cast<std::int32_t>(machines.size());
  place.local_rank = local_ranks[self];
  place.local_size = static_cast<std::int32_t>(
      std::count(first_of_host.begin(), first_of_host.end(), first_of_host[self]));
  find_cross_place(first_of_host.data(), local_ranks.data(), place);
  return place;
}

// The ranks exchange the identity of their machine before it is known which share one, so local
// ranks are known only after they have met.

void find_place_on_machine(const std::vector<RankInfo>& ranks, Settings& settings) {
  std::vector<std::string> machines;
  for (const RankInfo& each : ranks) machines.push_back(each.machine);
  const LauncherPlace place = place_among(machines, settings.rank);
  settings.local_rank = place.local_rank;
  settings.local_size = place.local_size;
  settings.cross_rank = place.cross_rank;
  settings.cross_size = place.cross_size;
}

void pin_to_core(std::thread& thread, const Settings& settings) {
  const auto place = static_cast<std::size_t>(settings.local_rank);
  const std::vector<int>& cores = settings.thread_affinity;
  if (cores.empty()) return;  // the kernel chooses
  if (place >= cores.size()) {
    os::log_warn("settings",
                 "HOROVOD_THREAD_AFFINITY names " + std::to_string(cores.size()) + " of " +
                     std::to_string(settings.local_size) +
                     " cores that the ranks of this host need: the thread of local rank " +
                     std::to_string(settings.local_rank) + " runs on any");
    return;
  }
  const Status pinned = os::pin_thread(thread, cores[place]);
  if (pinned) return;
  os::log_warn("settings", "HOROVOD_THREAD_AFFINITY: " + pinned.error().message +
                               "; the thread of local rank " + std::to_string(settings.local_rank) +
                               " runs on any");
}

Result<std::string> address_of_interface(const std::string& name) {
  auto interfaces = net::list_interfaces();
  if (!interfaces) return std::move(interfaces).error();
  const net::Interface* found = nullptr;
  std::string known;
  for (const net::Interface& each : *interfaces) {
    known += (known.empty() ? "" : ", ") + each.name;
    if (each.name != name || each.address.is_link_local()) continue;
    // An interface may have several addresses; IPv4 is the one that all backends support.
    if (found == nullptr || (found->address.v6 && !each.address.v6)) found = &each;
  }
  if (found == nullptr) {
    return make_error(ErrorCode::kUsage,
                      "HOROVOD_GLOO_IFACE=" + name +
                          ": no interface of this name has an address; the interfaces are " +
                          known);
  }
  return format_address(found->address);
}

Result<std::string> own_address_towards(const Endpoint& there) {
  // Connecting a datagram socket only looks up the route.
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(there, address);
  const os::Fd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(errno, "creating a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return errno_error(errno, "finding the route to " + format_endpoint(there));
  }
  auto own = net::local_endpoint(socket.get());
  if (!own) return std::move(own).error();
  // A dual-stack socket reports ::ffff:a.b.c.d, which peers on IPv4 cannot use.
  return format_address(own->address.unmapped());
}

}  // namespace hora::collectives
