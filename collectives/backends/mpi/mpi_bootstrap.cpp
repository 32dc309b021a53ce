// SPDX-License-Identifier: Apache-2.0
// The processes of an MPI job already have a world, so one allgather over it replaces the
// rendezvous. The place on the host comes from MPI's own notion of shared memory.
#include "collectives/backends/mpi/mpi_bootstrap.h"

#include <climits>
#include <exception>
#include <vector>

#include "collectives/backends/mpi/session.h"
#include "rendezvous/base/time.h"

namespace hora::collectives::mpi {

namespace {

Deadline deadline_after(std::int64_t timeout_ms) { return Clock::now() + Milliseconds(timeout_ms); }

// Only its deadline can end a bootstrap.
const std::atomic<bool> kNever{false};

bool is_launched_by_mpi(ErrorText& text) noexcept { return is_launched(text); }

bool gather(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
            ErrorText& error) noexcept {
  const Deadline deadline = deadline_after(timeout_ms);
  if (!start(deadline, error)) return false;
  // MPI_BYTE counts are int.
  if (bytes > INT_MAX) return error.set("too much to exchange");
  MPI_Request request = site.request_null;
  const int count = static_cast<int>(bytes);
  const int code =
      site.MPI_Iallgather(data, count, site.byte, received, count, site.byte, world(), &request);
  return check(code, "MPI_Iallgather", error) &&
         wait(request, kNever, deadline, "MPI_Iallgather", error);
}

bool find_place(LauncherPlace& place, ErrorText& error) {
  // How long the first process waits for the last one to initialise MPI.
  constexpr std::int64_t kTimeoutMs = 60'000;
  if (!start(deadline_after(kTimeoutMs), error)) return false;
  if (!check(site.MPI_Comm_rank(world(), &place.rank), "MPI_Comm_rank", error) ||
      !check(site.MPI_Comm_size(world(), &place.size), "MPI_Comm_size", error)) {
    return false;
  }
  // A library that does not understand its launcher starts as a world of one.
  if (launched_size() > 1 && place.size == 1) {
    return error.set(
        "the launcher started %d processes, but %s, which Hora uses, sees one: "
        "use the mpirun that belongs to it",
        launched_size(), library_name());
  }
  MPI_Comm host = site.comm_null;
  // The key, the rank, keeps the order of the ranks within the host.
  if (!check(site.MPI_Comm_split_type(world(), MPI_COMM_TYPE_SHARED, place.rank, site.info_null,
                                      &host),
             "MPI_Comm_split_type", error)) {
    return false;
  }
  // The first rank of a host names the host: find_cross_place() needs these and the local ranks of
  // all.
  int first = place.rank;
  const bool good = check(site.MPI_Comm_rank(host, &place.local_rank), "MPI_Comm_rank", error) &&
                    check(site.MPI_Comm_size(host, &place.local_size), "MPI_Comm_size", error) &&
                    check(site.MPI_Bcast(&first, 1, site.native_int, 0, host), "MPI_Bcast", error);
  site.MPI_Comm_free(&host);
  if (!good) return false;
  set_ranks_on_host(place.local_size);
  // Both numbers in one round, as pairs.
  const int mine[2] = {first, place.local_rank};
  std::vector<int> all(static_cast<std::size_t>(place.size) * 2);
  if (!gather(mine, sizeof mine, all.data(), kTimeoutMs, error)) return false;
  std::vector<int> first_of_host;
  std::vector<int> local_ranks;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    first_of_host.push_back(all[i]);
    local_ranks.push_back(all[i + 1]);
  }
  find_cross_place(first_of_host.data(), local_ranks.data(), place);
  return true;
}

bool place_in_world(LauncherPlace* place, ErrorText& error) noexcept {
  try {
    return find_place(*place, error);
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched_by_mpi, place_in_world, gather};

}  // namespace

const LauncherBootstrap& launcher_bootstrap() { return kLauncherBootstrap; }

}  // namespace hora::collectives::mpi
