// SPDX-License-Identifier: Apache-2.0
// What the doctor finds out about a host.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace hora::doctor {

// This machine's properties, as JSON: docs/reference/doctor.md has the members.

using Json = nlohmann::ordered_json;

// The machine: kernel, CPUs, memory, limits, cgroup, disks, clock, load. Nothing is started for it.
Json machine_facts(const std::string& cache_directory);
// The number of zombies, and the process that is the parent of most of them.
Json zombies();
// Processes and files of earlier Hora jobs that remain on this host.
Json leftovers();

// The first line of a file, without its end; empty when it cannot be read.
std::string first_line(const std::string& path);
// All of a small file.
std::string whole_file(const std::string& path);

// The software installed here, as it reports itself: Python and its frameworks, the GPU driver, the
// C library.

// With `deep` every framework is imported and does a tiny operation; else only its version is read.
Json software_facts(bool deep, std::chrono::milliseconds timeout);

}  // namespace hora::doctor
