// SPDX-License-Identifier: Apache-2.0
// hora-perf's command line.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hora/hora.h"

namespace hora::perf {

enum class Format { kTable, kCsv, kJson };

struct Options {
  hora_operation operation = HORA_ALLREDUCE;
  std::vector<std::int64_t> sizes;  // bytes, as nccl-tests counts them
  hora_dtype dtype = HORA_FLOAT32;
  hora_reduce_op op = HORA_SUM;
  int root = 0;
  int warm_up = 5;
  int iterations = 0;    // 0: as many as fit into `seconds`
  double seconds = 0.5;  // for each size
  bool check = true;
  bool in_place = false;
  bool prepared = false;  // hora_prepare once, then hora_start
  bool gpu = false;       // tensors in the memory of each rank's GPU
  Format format = Format::kTable;
  bool help = false;
};

std::string_view usage();
// The problem, with what was found and what was expected; empty when `options` is filled.
std::string parse_options(const std::vector<std::string>& arguments, Options& options);

std::string_view name_of(hora_operation operation);
std::string_view name_of(hora_dtype dtype);
std::string_view name_of(hora_reduce_op op);

}  // namespace hora::perf
