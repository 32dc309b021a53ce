// SPDX-License-Identifier: Apache-2.0
// One row per launcher. None of them is asked anything: what a rank may know about its world has to
// be in its environment.
#include "collectives/runtime/started_world.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace hora::collectives {

namespace {

struct Row {
  std::string_view launcher;
  std::string_view size;
  std::string_view rank;
  std::string_view local_size;                 // empty: unknown
  std::array<std::string_view, 4> identity{};  // those that are set count
};

constexpr std::string_view kTorchRun = "TORCHELASTIC_RUN_ID";

// The inner launcher first. Plain RANK and WORLD_SIZE come last: scripts of batch jobs set them for
// other frameworks, sometimes with the numbers of the whole allocation.
constexpr Row kRows[] = {
    {"torchrun",
     "WORLD_SIZE",
     "RANK",
     "LOCAL_WORLD_SIZE",
     {kTorchRun, "MASTER_ADDR", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID"}},
    {"mpirun",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE",
     {"PMI_ID", "SLURM_JOB_ID"}},
    {"jsrun",
     "JSM_NAMESPACE_SIZE",
     "JSM_NAMESPACE_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE",
     {"LSB_JOBID", "PMIX_NAMESPACE"}},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "", {"FLUX_JOB_ID"}},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", {"PMI_JOBID", "SLURM_JOB_ID"}},
    {"its launcher", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
};

// -1: not set, or no number.
int number_of(const Variables& variables, std::string_view name) {
  if (name.empty()) return -1;
  const auto text = variables(name);
  int value = -1;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

std::string text_of(const Variables& variables, std::string_view name) {
  return variables(name).value_or("");
}

bool applies(const Row& row, const Variables& variables) {
  if (row.identity.front() == kTorchRun) return is_started_by_torchrun(variables);
  if (number_of(variables, row.size) <= 1 || number_of(variables, row.rank) < 0) return false;
  // A shell with a number of processes for programs to come has no address for them to meet at.
  return row.size != "WORLD_SIZE" || !text_of(variables, "MASTER_ADDR").empty();
}

std::string first_host(const Row& row, int size, const Variables& variables) {
  // Names may lead elsewhere, or nowhere, from inside of a container; loopback never does.
  if (number_of(variables, row.local_size) == size) return "127.0.0.1";
  const bool slurm = row.launcher == "srun";
  if (slurm && number_of(variables, "SLURM_STEP_NUM_NODES") == 1) return "127.0.0.1";
  std::string master = text_of(variables, "MASTER_ADDR");
  if (!master.empty()) return master;
  return slurm ? first_of_nodelist(text_of(variables, "SLURM_STEP_NODELIST")) : std::string();
}

// FNV-1a: the same on every machine, which std::hash need not be.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211u;
  }
  return hash;
}

// "12000-12003,12010", as Slurm writes SLURM_STEP_RESV_PORTS.
std::vector<std::uint16_t> parse_ports(std::string_view text) {
  std::vector<std::uint16_t> ports;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::uint16_t first = 0;
    const auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{}) break;
    std::uint16_t last = first;
    at = parsed.ptr;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    for (unsigned port = first; port <= last; ++port) {
      ports.push_back(static_cast<std::uint16_t>(port));
    }
    if (at < end && *at != ',') break;
    ++at;
  }
  return ports;
}

}  // namespace

std::string StartedWorld::described() const {
  return variable + "=" + std::to_string(size) + " says that " + launcher +
         " started this process as rank " + std::to_string(rank) + " of " + std::to_string(size);
}

bool is_started_by_torchrun(const Variables& variables) {
  return variables(kTorchRun) && number_of(variables, "RANK") >= 0 &&
         number_of(variables, "WORLD_SIZE") >= 1;
}

std::optional<StartedWorld> find_started_world(const Variables& variables) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& each) { return applies(each, variables); });
  if (row == std::end(kRows)) return std::nullopt;
  StartedWorld world;
  world.launcher = row->launcher;
  world.variable = row->size;
  world.rank = number_of(variables, row->rank);
  world.size = number_of(variables, row->size);
  if (world.size == 1) return std::nullopt;
  world.first_host = first_host(*row, world.size, variables);
  for (const std::string_view name : row->identity) {
    if (!name.empty()) world.identity += text_of(variables, name) + "\n";
  }
  if (row->launcher == "srun") {
    world.reserved_ports = parse_ports(text_of(variables, "SLURM_STEP_RESV_PORTS"));
  }
  return world;
}

std::string first_of_nodelist(std::string_view list) {
  std::string name;
  bool inside = false;    // of brackets
  bool skipping = false;  // what follows the first number of them
  for (const char c : list) {
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = skipping = false;
    } else if (c == ',' && !inside) {
      break;
    } else if (inside && (c == ',' || c == '-')) {
      skipping = true;
    } else if (!skipping) {
      name += c;
    }
  }
  return name;
}

std::vector<std::uint16_t> meeting_ports(const StartedWorld& world) {
  if (!world.reserved_ports.empty()) return world.reserved_ports;
  // Outgoing connections have 32768 and more; well-known services are mostly below 20000. Several,
  // because any one may be taken by another program.
  constexpr std::uint64_t kFirst = 20'000;
  constexpr std::uint64_t kCount = 10'000;
  constexpr std::uint64_t kStep = 1'009;
  std::vector<std::uint16_t> ports;
  const std::uint64_t begin = hash_of(world.identity);
  for (std::uint64_t i = 0; i < 6; ++i) {
    ports.push_back(static_cast<std::uint16_t>(kFirst + (begin % kCount + i * kStep) % kCount));
  }
  return ports;
}

std::string meeting_token(const StartedWorld& world) {
  char text[40];
  std::snprintf(text, sizeof text, "world-%016llx",
                static_cast<unsigned long long>(hash_of("token\n" + world.identity)));
  return text;
}

}  // namespace hora::collectives
