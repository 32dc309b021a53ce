// What this machine is, as JSON: docs/reference/doctor.md has the members.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace hora::doctor {

using Json = nlohmann::ordered_json;

// The machine: kernel, CPUs, memory, limits, cgroup, disks, clock, load. Nothing is started for it.
Json machine_facts(const std::string& cache_directory);
// How many processes have ended that nobody has asked about, and whose children most of them are.
Json zombies();
// Processes and files that jobs of ours have left here, which belong to nobody any more.
Json leftovers();

// The first line of a file, without its end; empty when it cannot be read.
std::string first_line(const std::string& path);
// All of a small file.
std::string whole_file(const std::string& path);

}  // namespace hora::doctor
