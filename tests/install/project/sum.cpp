// SPDX-License-Identifier: Apache-2.0
// An allgather of rows that differ in number from rank to rank, through the C interface, in C++11.
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <hora/hora.h>

namespace {

void check(hora_status status, const std::string& what) {
  if (status != HORA_OK) throw std::runtime_error(what + ": " + hora_last_error());
}

std::vector<std::int32_t> allgather(const std::vector<std::int32_t>& mine) {
  const std::int64_t shape = static_cast<std::int64_t>(mine.size());
  hora_request request{};
  request.struct_size = sizeof(request);
  request.operation = HORA_ALLGATHER;
  request.name = "rows";
  request.input.data = const_cast<std::int32_t*>(mine.data());
  request.input.shape = &shape;
  request.input.ndim = 1;
  request.input.dtype = HORA_INT32;
  request.input.device = HORA_CPU_DEVICE;
  request.output.dtype = HORA_INT32;
  request.output.device = HORA_CPU_DEVICE;
  request.prescale = request.postscale = 1.0;

  hora_handle handle = 0;
  check(hora_submit(&request, 1, &handle), "submit");
  if (hora_wait(handle, 60000) != HORA_OK) throw std::runtime_error(hora_error(handle));
  hora_tensor result{};
  check(hora_result(handle, &result), "result");
  const auto* data = static_cast<const std::int32_t*>(result.data);
  std::vector<std::int32_t> all(data, data + result.shape[0]);
  hora_release(handle);
  return all;
}

}  // namespace

int main() try {
  check(hora_init(nullptr), "init");
  const int rank = hora_rank();
  const std::vector<std::int32_t> all = allgather(std::vector<std::int32_t>(rank + 1, rank));
  std::size_t at = 0;
  for (int r = 0; r < hora_size(); ++r) {
    for (int i = 0; i <= r; ++i) {
      if (at >= all.size() || all[at++] != r) throw std::runtime_error("wrong rows");
    }
  }
  std::cout << "cpp " << rank << " of " << hora_size() << ": " << at << " rows\n";
  check(hora_shutdown(), "shutdown");
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
