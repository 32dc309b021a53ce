// SPDX-License-Identifier: Apache-2.0
// Libraries are loaded here and do a tiny operation, each in a process of its own (hora-selftest).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "child.h"
#include "facts.h"

namespace hora::doctor {

// Interprets the output, the end and the last words of hora-selftest.

// Its answer; with an error, "error", and "stage" for where that was.
nlohmann::ordered_json selftest_result(const Answer& answer, std::chrono::milliseconds timeout);

// libhora alone, as `ranks` processes over shared memory, as two over TCP; MPI.
Json runtime_trials(int ranks, std::chrono::milliseconds timeout);
// The driver's libraries, the copies of NCCL (of `copies`, and the one that the loader finds), and
// a communicator of one where there is a GPU.
Json gpu_selftests(const Json& copies, std::chrono::milliseconds timeout);
// Rank RANK of the world of all hosts: `words` are of main.cpp's line.
struct WorldSeat {
  int rank = 0;
  int size = 1;
  std::string host, job, address, token, interface;
  int port = 0;
};
Json join_world(const WorldSeat& seat, std::chrono::milliseconds timeout);

}  // namespace hora::doctor
