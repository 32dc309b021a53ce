// SPDX-License-Identifier: Apache-2.0
// A rank of tests/numa/run: after some collectives, where are the pages of its part of the memory
// that the ranks share?
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "hora/hora.h"

namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "rank %d: %s\n", hora_rank(), text.c_str());
  std::exit(1);
}

void allreduce(std::vector<float>& tensor) {
  const auto count = static_cast<std::int64_t>(tensor.size());
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = HORA_ALLREDUCE;
  request.name = "tensor";
  request.input = {tensor.data(), &count, 1, HORA_FLOAT32, HORA_CPU_DEVICE, 0};
  request.output = request.input;
  request.reduce_op = HORA_SUM;
  request.prescale = request.postscale = 1.0;
  hora_handle handle = 0;
  if (hora_submit(&request, 1, &handle) != HORA_OK) fail(hora_last_error());
  if (hora_wait(handle, 120'000) != HORA_OK) fail(hora_error(handle));
  hora_release(handle);
}

// The kernel's own words: the node of the CPU that this runs on.
int node_now() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (getcpu(&cpu, &node) != 0) fail("getcpu failed");
  return static_cast<int>(node);
}

}  // namespace

int main() {
  if (hora_init(nullptr) != HORA_OK) fail(hora_last_error());
  const int size = hora_size();
  const int rank = hora_rank();
  const int sum = size * (size + 1) / 2;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> tensor(3'000'001, static_cast<float>(rank + 1));
    allreduce(tensor);
    for (const float each : tensor) {
      if (each != static_cast<float>(sum)) fail("a wrong sum");
    }
  }
  // "ADDRESS prefer:1 file=/memfd:hora (deleted) ... N0=3 N1=512 kernelpagesize_kB=4": the part
  // whose place this process has chosen has a line of its own, between one that begins before all
  // ranks' parts and, maybe, one that begins with another rank's.
  const int node = node_now();
  const std::string wanted = "prefer:" + std::to_string(node);
  long on_own = 0;
  long elsewhere = 0;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:hora") == std::string::npos) continue;
    std::istringstream words(line);
    std::string address;
    std::string policy;
    words >> address >> policy;
    if (policy == "default") continue;
    if (policy.rfind(wanted, 0) != 0) fail("its rings have the policy " + policy);
    for (std::string word; words >> word;) {
      int where = 0;
      long pages = 0;
      if (std::sscanf(word.c_str(), "N%d=%ld", &where, &pages) != 2) continue;
      (where == node ? on_own : elsewhere) += pages;
    }
    break;
  }
  std::printf("rank %d: on node %d; pages of its rings on that node: %ld, elsewhere: %ld\n", rank,
              node, on_own, elsewhere);
  if (on_own == 0 || elsewhere > 0) fail("its rings are not on its node");
  if (rank == 0) {
    const std::string all = hora_describe();
    const std::size_t note = all.find("memory: ");
    std::printf("%s\n", all.substr(note, all.find('"', note) - note).c_str());
  }
  return hora_shutdown() == HORA_OK ? 0 : 1;
}
