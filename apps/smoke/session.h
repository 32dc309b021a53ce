// SPDX-License-Identifier: Apache-2.0
// hora.h for a program that wants to check it: blocking calls that answer a status and a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hora/hora.h"

namespace hora::smoke {

// Row-major elements of any dtype, read and written as doubles.
class Array {
 public:
  Array(hora_dtype dtype, std::vector<std::int64_t> shape);

  std::int64_t count() const { return count_; }
  hora_dtype dtype() const { return dtype_; }
  double get(std::int64_t index) const;
  void set(std::int64_t index, double value);
  hora_tensor view();
  void* data() { return bytes_.data(); }

 private:
  hora_dtype dtype_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_;
  std::vector<unsigned char> bytes_;
};

struct Answer {
  hora_status status = HORA_OK;
  std::string text;
  std::vector<double> values;  // of a result that the library allocated
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> splits;  // alltoall
};

hora_request request_for(hora_operation operation, const char* name);
// Submits, waits (at most a minute) and collects.
Answer run(const hora_request& request);

Answer allreduce(const char* name, Array& input, Array& output, hora_reduce_op op);
Answer broadcast(const char* name, Array& data, int root);
// allgather, reducescatter (with `op`), alltoall (with `splits`, may be empty).
Answer with_result(hora_operation operation, const char* name, Array& input,
                   hora_reduce_op op = HORA_SUM, const std::vector<std::int64_t>& splits = {});
Answer barrier();

// The sum over all ranks; every rank gets it. Ends the program when the library fails.
double agree_on_sum(double mine);
// The text of each rank.
std::vector<std::string> collect_texts(const std::string& mine);

}  // namespace hora::smoke
