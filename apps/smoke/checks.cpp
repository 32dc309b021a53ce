// SPDX-License-Identifier: Apache-2.0
#include "apps/smoke/checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "apps/smoke/session.h"

namespace hora::smoke {

// Each check computes its expected result locally from the ranks' numbers, so no reference data
// travels.

namespace {

struct Dtype {
  hora_dtype value;
  const char* name;
  bool is_unsigned;
};

constexpr Dtype kDtypes[] = {
    {HORA_UINT8, "uint8", true},        {HORA_INT8, "int8", false},
    {HORA_UINT16, "uint16", true},      {HORA_INT16, "int16", false},
    {HORA_INT32, "int32", false},       {HORA_INT64, "int64", false},
    {HORA_FLOAT16, "float16", false},   {HORA_FLOAT32, "float32", false},
    {HORA_FLOAT64, "float64", false},   {HORA_BOOL, "bool", true},
    {HORA_BFLOAT16, "bfloat16", false},
};

// Empty, tiny, odd, and just above a power of two, where chunking goes wrong.
constexpr std::int64_t kSizes[] = {0, 1, 2, 7, 64, 1000, 4097};

// Small whole numbers, and zero from rank 16 on: sums are exact in every dtype, even in 8 bits.
double value_at(const Dtype& dtype, int rank, std::int64_t index) {
  const std::int64_t mixed = (index * 5 + rank + index / 7) % 4;
  if (dtype.value == HORA_BOOL) return mixed == 1 ? 1 : 0;
  if (rank >= 16) return 0;  // sums stay small enough for 8-bit integers and bfloat16
  return static_cast<double>(dtype.is_unsigned ? mixed : mixed - 2);
}

double reduced(const Dtype& dtype, hora_reduce_op op, int size, std::int64_t index) {
  double result = value_at(dtype, 0, index);
  for (int rank = 1; rank < size; ++rank) {
    const double value = value_at(dtype, rank, index);
    if (op == HORA_SUM) result += value;
    if (op == HORA_MIN) result = std::min(result, value);
    if (op == HORA_MAX) result = std::max(result, value);
  }
  return dtype.value == HORA_BOOL && result > 1 ? 1 : result;
}

const char* name_of(hora_reduce_op op) {
  return op == HORA_SUM ? "sum" : op == HORA_MIN ? "min" : "max";
}

// The calls of one operation, with one dtype or with none.
class Checker {
 public:
  explicit Checker(const char* operation, const char* dtype = "")
      : name_("smoke." + std::string(operation) + "." + dtype) {
    result_.operation = operation;
  }

  CheckResult take_result() { return std::move(result_); }

  void barrier_cases() {
    for (int i = 0; i < 3; ++i) succeeded(barrier(), "");
  }

  void allreduce_cases(const Dtype& dtype) {
    for (std::int64_t count : kSizes) {
      for (hora_reduce_op op : {HORA_SUM, HORA_MIN, HORA_MAX}) {
        const std::string what =
            std::string(dtype.name) + " " + name_of(op) + " of " + std::to_string(count);
        Array input = filled(dtype, {count});
        Array output(dtype.value, {count});
        if (!succeeded(allreduce(name_.c_str(), input, output, op), what)) continue;
        for (std::int64_t i = 0; i < count; ++i) {
          if (!equal(output.get(i), reduced(dtype, op, size_, i), i, what)) break;
        }
      }
    }
  }

  void allgather_cases(const Dtype& dtype) {
    for (std::int64_t base : {0, 1, 33}) {
      // The ranks give different numbers of rows.
      const auto rows = [&](int rank) { return base + rank % 3; };
      const std::string what = std::string(dtype.name) + " of " + std::to_string(base) + "+ rows";
      Array input = filled(dtype, {rows(rank_), 3});
      const Answer answer = with_result(HORA_ALLGATHER, name_.c_str(), input);
      if (!succeeded(answer, what)) continue;
      std::int64_t place = 0;
      bool good = true;
      for (int rank = 0; rank < size_ && good; ++rank) {
        for (std::int64_t i = 0; i < rows(rank) * 3 && good; ++i, ++place) {
          good = place < static_cast<std::int64_t>(answer.values.size()) &&
                 equal(answer.values[static_cast<std::size_t>(place)], value_at(dtype, rank, i),
                       place, what);
        }
      }
      if (good && place != static_cast<std::int64_t>(answer.values.size())) {
        fail(what + ": the result has a wrong size");
      }
    }
  }

  void broadcast_cases(const Dtype& dtype) {
    for (int root : {0, size_ - 1}) {
      for (std::int64_t count : kSizes) {
        const std::string what = std::string(dtype.name) + " of " + std::to_string(count) +
                                 " from rank " + std::to_string(root);
        Array data = filled(dtype, {count});
        if (!succeeded(broadcast(name_.c_str(), data, root), what)) continue;
        for (std::int64_t i = 0; i < count; ++i) {
          if (!equal(data.get(i), value_at(dtype, root, i), i, what)) break;
        }
      }
    }
  }

  void alltoall_cases(const Dtype& dtype) {
    // Different for each pair, some of them empty.
    const auto rows = [](int from, int to) { return std::int64_t{(from + 2 * to) % 5}; };
    std::vector<std::int64_t> splits;
    for (int to = 0; to < size_; ++to) splits.push_back(rows(rank_, to));
    Array input(dtype.value, {std::accumulate(splits.begin(), splits.end(), INT64_C(0)), 2});
    std::int64_t place = 0;
    for (int to = 0; to < size_; ++to) {
      for (std::int64_t i = 0; i < rows(rank_, to) * 2; ++i) {
        input.set(place++, value_at(dtype, rank_, to * 10 + i));
      }
    }
    const std::string what = dtype.name;
    const Answer answer = with_result(HORA_ALLTOALL, name_.c_str(), input, HORA_SUM, splits);
    if (!succeeded(answer, what)) return;
    place = 0;
    for (int from = 0; from < size_; ++from) {
      if (answer.splits[static_cast<std::size_t>(from)] != rows(from, rank_)) {
        return fail(what + ": the received splits are wrong");
      }
      for (std::int64_t i = 0; i < rows(from, rank_) * 2; ++i, ++place) {
        if (!equal(answer.values[static_cast<std::size_t>(place)],
                   value_at(dtype, from, rank_ * 10 + i), place, what)) {
          return;
        }
      }
    }
  }

  void reducescatter_cases(const Dtype& dtype) {
    for (std::int64_t rows : {0, 1, 37}) {
      const std::string what = std::string(dtype.name) + " of " + std::to_string(rows) + " rows";
      Array input = filled(dtype, {rows, 3});
      const Answer answer = with_result(HORA_REDUCESCATTER, name_.c_str(), input);
      if (!succeeded(answer, what)) continue;
      const std::int64_t share = rows / size_;
      const std::int64_t extra = rows % size_;
      // The first ranks get one row more if the rows do not divide evenly.
      const std::int64_t mine = share + (rank_ < extra ? 1 : 0);
      const std::int64_t first = (share * rank_ + std::min<std::int64_t>(rank_, extra)) * 3;
      if (static_cast<std::int64_t>(answer.values.size()) != mine * 3) {
        fail(what + ": the result has a wrong size");
        continue;
      }
      for (std::int64_t i = 0; i < mine * 3; ++i) {
        const double expected = reduced(dtype, HORA_SUM, size_, first + i);
        if (!equal(answer.values[static_cast<std::size_t>(i)], expected, i, what)) break;
      }
    }
  }

  // Ranks that disagree must all get the error, and the runtime must continue afterwards.
  void mismatch_cases() {
    Array shaped(HORA_FLOAT32, {rank_ == 0 ? 3 : 4});
    expect_mismatch(allreduce("smoke.shapes", shaped, shaped, HORA_SUM), "shapes");
    Array typed(rank_ == 0 ? HORA_FLOAT32 : HORA_INT32, {3});
    expect_mismatch(allreduce("smoke.dtypes", typed, typed, HORA_SUM), "dtypes");
    Array data(HORA_FLOAT32, {3});
    expect_mismatch(broadcast("smoke.roots", data, rank_ == 0 ? 0 : 1), "roots");
    succeeded(allreduce("smoke.after", data, data, HORA_SUM), "afterwards");
  }

 private:
  void fail(const std::string& text) {
    ++result_.failures;
    // The first failure is enough to explain; the others usually follow from it.
    if (result_.first_failure.empty()) result_.first_failure = result_.operation + " " + text;
  }

  bool succeeded(const Answer& answer, const std::string& what) {
    ++result_.cases;
    if (answer.status == HORA_OK) return true;
    fail(what + ": " + answer.text);
    return false;
  }

  bool equal(double found, double expected, std::int64_t index, const std::string& what) {
    // Exactly: the values are such that no dtype rounds them.
    if (found == expected) return true;
    fail(what + ": element " + std::to_string(index) + " is " + std::to_string(found) +
         ", expected " + std::to_string(expected));
    return false;
  }

  Array filled(const Dtype& dtype, std::vector<std::int64_t> shape, std::int64_t first = 0) const {
    Array array(dtype.value, std::move(shape));
    for (std::int64_t i = 0; i < array.count(); ++i) {
      array.set(i, value_at(dtype, rank_, first + i));
    }
    return array;
  }

  void expect_mismatch(const Answer& answer, const std::string& what) {
    ++result_.cases;
    if (answer.status == HORA_MISMATCH) return;
    fail("of " + what + " was not an error but: " + hora_status_name(answer.status));
  }

  const std::string name_;
  const int rank_ = hora_rank();
  const int size_ = hora_size();
  CheckResult result_;
};

// Every rank makes the same calls, in each thread in the same order, also after a failed one: a
// rank that stopped early would leave the others waiting. With a thread for each dtype, all of them
// wait together for a rank that is far away. Where no more threads may be had, this one goes
// through the rest in their order, which the threads of the other ranks do not mind.
CheckResult check_dtypes(const char* operation, void (Checker::*cases)(const Dtype&)) {
  std::vector<std::function<CheckResult()>> tasks;
  for (const Dtype& dtype : kDtypes) {
    tasks.push_back([&dtype, operation, cases] {
      Checker checker(operation, dtype.name);
      (checker.*cases)(dtype);
      return checker.take_result();
    });
  }
  CheckResult all;
  all.operation = operation;
  for (const CheckResult& one : run_at_once(tasks)) {
    ++all.dtypes;
    all.cases += one.cases;
    all.failures += one.failures;
    if (all.first_failure.empty()) all.first_failure = one.first_failure;
  }
  return all;
}

CheckResult check(const char* operation, void (Checker::*cases)()) {
  Checker checker(operation);
  (checker.*cases)();
  return checker.take_result();
}

}  // namespace

std::vector<CheckResult> check_all() {
  std::vector<CheckResult> results = {
      check_dtypes("allreduce", &Checker::allreduce_cases),
      check_dtypes("allgather", &Checker::allgather_cases),
      check_dtypes("broadcast", &Checker::broadcast_cases),
      check_dtypes("alltoall", &Checker::alltoall_cases),
      check_dtypes("reducescatter", &Checker::reducescatter_cases),
      check("barrier", &Checker::barrier_cases),
  };
  if (hora_size() > 1) results.push_back(check("mismatch", &Checker::mismatch_cases));
  return results;
}

}  // namespace hora::smoke
