// SPDX-License-Identifier: Apache-2.0
// Which backend runs an operation. One table, the same on every rank; selection only looks things
// up and never asks a backend.  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backend.h"

namespace hora::collectives {

struct SelectionRow {
  std::string backend;
  Capability capability;
  bool composed = false;  // of two other backends
};

using SelectionTable = std::vector<SelectionRow>;

struct SelectionQuery {
  hora_operation operation = HORA_BARRIER;
  hora_dtype dtype = HORA_UINT8;
  std::int64_t bytes = 0;  // the same on every rank
  bool gpu = false;
  bool one_host = false;  // all ranks of the set share a host
  int set_size = 1;
  bool hierarchical = true;  // composed rows are eligible
};

// The id of the backend that is composed of two others.
inline constexpr const char* kHierarchical = "hierarchical";

// Returns the id of the eligible row with the largest score (among equals, the first). Nothing: no
// backend can do it.
std::optional<std::string> select_backend(const SelectionTable& table, const SelectionQuery& query);

// Returns the backends that every rank can use, in the order of the first rank's list. `wanted`
// (may be empty) is a comma-separated list that restricts them further: "shm,gloo" to these and to
// those that are `indispensable`, "-mpi" to all others.
std::vector<std::string> agree_on_backends(const std::vector<std::vector<std::string>>& usable,
                                           const std::string& wanted,
                                           const std::vector<std::string>& indispensable);

// The first item of such a list that is none of `known`, without its minus; empty: there is none.
std::string unknown_backend(const std::string& wanted, const std::vector<std::string>& known);

// Formats the table for people: "allreduce  all dtypes  0..1023 bytes  gloo (100)".
std::string format_table(const SelectionTable& table);

}  // namespace hora::collectives
