// SPDX-License-Identifier: Apache-2.0
// Lists of CPUs and cores, which CPUs each rank of a host may use, and how many threads are
// sensible there.  [pure]
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/text/user_input.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Lists of CPUs as people and the kernel write them: "0-3,8".

// No machine has more. Bounds what a slip of the finger costs.
inline constexpr int kMostCpus = 8192;

// Numbers and ranges separated by commas, in the order given. `at` is where the list begins in
// `text`, of which the error shows the place.
Result<std::vector<int>> parse_cpu_list(std::string_view list, std::string_view origin,
                                        std::string_view text, std::size_t at = 0);

// The value of --bind cpu-list:LIST[:LIST...], without its first word.
Result<std::vector<std::vector<int>>> parse_cpu_lists(std::string_view text,
                                                      std::string_view origin);

// "0-3,8": sorted, each CPU once.
std::string format_cpu_list(std::vector<int> cpus);

// Which CPUs each rank of a host may use, and how many threads are sensible there.

struct CpuPlace {
  int cpu = 0;      // as the kernel counts them
  int core = 0;     // CPUs of one core share it; unique over packages
  int node = 0;     // NUMA node
  int package = 0;  // socket
  int l3 = -1;      // the first CPU of those that share its level 3 cache; -1: not known
};

struct Binding {
  std::vector<std::vector<int>> cpus;  // by local rank; empty: all may be used
  int threads = 1;                     // OMP_NUM_THREADS: cores per rank, at least one
  std::string why;                     // "each rank on its NUMA node"
};

// The modes that users name; "auto" and "none" are separate.
inline constexpr std::string_view kL3Mode = "l3";  // the only one that asks for CpuPlace::l3
inline constexpr std::string_view kCpuListMode = "cpu-list:";
// That of --rankfile, followed by a list of cores for each local rank, separated by blanks;
// the list of a rank that is not bound is empty.
inline constexpr std::string_view kCoresMode = "cores:";

// `usable` are the CPUs that this process may run on; `mode` is none, auto, core, l3, socket, numa,
// "cpu-list:LIST[:LIST...]" or "cores:LIST[ LIST...]". auto binds to NUMA nodes where there are
// several: sharing a node with another job costs little, sharing a core halves both. Errors
// (kUsage): a list that names a CPU or core that is not usable, or has too few for the ranks.
Result<Binding> plan_binding(const std::vector<CpuPlace>& usable, int ranks,
                             const std::string& mode);

// OMP_NUM_THREADS where a quota allows the ranks of a host `cpus` CPUs together, whatever CPUs they
// may run on: what is more than that, the kernel stops for a while in every period.
int threads_within(double cpus, int ranks, int threads);

// The devices of a list as CUDA_VISIBLE_DEVICES has it: numbers, UUIDs and those of MIG, up to the
// first word that is neither ("-1", "NoDevFiles"), where CUDA stops reading, too. Errors (kUsage):
// one device twice.
Result<std::vector<std::string>> visible_gpus(std::string_view list);

// The GPUs of the rank at place `index` of `ranks` that share `visible`, as CUDA_VISIBLE_DEVICES
// has them; empty: none are set. `per_rank` is auto, which lets ranks share where there are fewer
// GPUs, or a number; errors (kUsage): there are fewer.
Result<std::string> plan_gpus(const std::vector<std::string>& visible, int ranks, int index,
                              const std::string& per_rank);

// Cores as Open MPI's rankfiles name them.
//   list := item { (";" | ",") item }      item := [socket ":"] cores      cores := N | N-M | "*"
// "0:0-3,5" are cores of socket 0: after a ',' the socket stays, after a ';' it does not. Without
// a socket, cores are counted over all sockets. A core stands for all its hardware threads. Both
// are counted from 0 among those that the job may use, socket after socket.

struct CoreRange {
  std::optional<int> socket;
  int first = 0;
  std::optional<int> last;  // none: all from `first` on
  friend bool operator==(const CoreRange&, const CoreRange&) = default;
};

// `list` begins at byte `at` of the line, at which errors (kUsage) point.
Result<std::vector<CoreRange>> parse_core_list(std::string_view list, const SpecLine& line,
                                               std::size_t at);

// Their CPUs, each once. Errors (kUsage): a socket or a core that is not there.
Result<std::vector<int>> cpus_of(const std::vector<CoreRange>& cores,
                                 const std::vector<CpuPlace>& usable);

}  // namespace hora::launcher
