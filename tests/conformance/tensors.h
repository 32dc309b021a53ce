// SPDX-License-Identifier: Apache-2.0
// Tensors with known values, and what each collective must make of them, computed another way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/kernels/elements.h"
#include "collectives/types.h"

namespace hora::test {

// Where the tensors of the tests lie: HORA_TEST_DEVICE, a GPU's number, or in host memory. Memory
// that the host can read as well (managed memory), so that the same checks serve.
int test_device();
void* allocate_on_device(std::size_t bytes);
void free_on_device(void* memory);
void copy_from_device(void* to, const void* from, std::size_t bytes);

template <typename T>
struct TestMemory {
  using value_type = T;
  T* allocate(std::size_t count) {
    if (test_device() == HORA_CPU_DEVICE) return std::allocator<T>().allocate(count);
    return static_cast<T*>(allocate_on_device(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) {
    if (test_device() == HORA_CPU_DEVICE) return std::allocator<T>().deallocate(memory, count);
    free_on_device(memory);
  }
  friend bool operator==(const TestMemory&, const TestMemory&) { return true; }
};

// Elements of any dtype as doubles: every value used in the tests is exact in all of them.
class Tensor {
 public:
  Tensor(hora_dtype dtype, std::vector<std::int64_t> shape, std::size_t misalignment = 0);

  double get(std::int64_t index) const;
  void set(std::int64_t index, double value);
  std::int64_t count() const { return count_; }
  hora_dtype dtype() const { return dtype_; }
  void* data() { return bytes_.data() + offset_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  hora_tensor view();

 private:
  hora_dtype dtype_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_;
  std::size_t offset_;
  std::vector<unsigned char, TestMemory<unsigned char>> bytes_;
};

using collectives::read_element;

// Small numbers that differ between ranks and places; 0 and 1 for bools, none negative for
// unsigned dtypes.
double value_at(hora_dtype dtype, int rank, std::int64_t index);
// value_at repeats itself.
inline constexpr std::int64_t kPeriod = 25;
void fill(Tensor& tensor, int rank, std::int64_t first_index = 0);

// The reduction over `ranks` of value_at(.., index), as the dtype holds it.
double reduced(hora_dtype dtype, hora_reduce_op op, const std::vector<int>& ranks,
               std::int64_t index);

std::string difference(const std::string& what, std::int64_t index, double found, double expected);

// Every dtype of the library.
const std::vector<hora_dtype>& all_dtypes();
// The reductions that the dtype has.
std::vector<hora_reduce_op> reductions_of(hora_dtype dtype);

}  // namespace hora::test
