// SPDX-License-Identifier: Apache-2.0
// Every collective, dtype, reduction and awkward size, over every backend, against answers that are
// computed without the library.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "calls.h"
#include "collectives/backends/registry.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

struct Case {
  std::string backend;
  int size;
};

// Backends that can be loaded here, with the world sizes to try.
std::vector<Case> cases() {
  if (launched_size() > 0) return {{launched_backend(), launched_size()}};
  std::vector<Case> all{{"self", 1}};
  for (const char* id : {"tcp", "gloo", "shm"}) {
    const collectives::BackendRow* row = collectives::find_backend_row(id);
    if (row == nullptr || !collectives::load_backend(*row)) continue;
    for (int size : {2, 3, 4, 5}) all.push_back({id, size});
  }
  return all;
}

std::string describe(const Case& each) { return each.backend + " " + std::to_string(each.size); }

WorldOptions options_of(const Case& each, std::int64_t fusion = 128 << 20) {
  WorldOptions options;
  options.size = each.size;
  options.backends = each.backend;
  options.fusion_threshold_bytes = fusion;
  return options;
}

std::vector<int> all_ranks(const Communicator& communicator) {
  std::vector<int> ranks(static_cast<std::size_t>(communicator.world().settings.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

const std::vector<std::int64_t> kSizes = {0,   1,   2,    3,    5,    7,    8,   15,
                                          16,  17,  31,   33,   63,   64,   65,  127,
                                          255, 257, 1000, 1023, 1025, 4096, 4097};

void run_all(const WorldOptions& options, const RankBody& body) {
  const std::vector<std::string> failures = run_ranks(options, body);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(failures[rank] == "");
  }
}

// One allreduce for each size, all in flight together.
void allreduce_sizes(Communicator& communicator, hora_dtype dtype, hora_reduce_op op,
                     const std::vector<std::int64_t>& sizes, bool in_place) {
  const std::string label = std::string(collectives::dtype_name(dtype)) + " " +
                            std::string(collectives::reduce_op_name(op));
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<std::string> names;
  for (std::int64_t size : sizes) {
    inputs.emplace_back(dtype, std::vector<std::int64_t>{size}, size % 3 == 1 ? 1 : 0);
    outputs.emplace_back(dtype, std::vector<std::int64_t>{size});
    fill(inputs.back(), rank_of(communicator));
    names.push_back(label + " " + std::to_string(size));
  }
  std::vector<Call> calls;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    calls.emplace_back(communicator, reduce_request(names[i].c_str(), inputs[i],
                                                    in_place ? inputs[i] : outputs[i], op));
  }
  std::vector<double> expected;
  for (std::int64_t k = 0; k < kPeriod; ++k) {
    expected.push_back(reduced(dtype, op, all_ranks(communicator), k));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    calls[i].finish();
    const Tensor& result = in_place ? inputs[i] : outputs[i];
    for (std::int64_t k = 0; k < sizes[i]; ++k) {
      const double right = expected[static_cast<std::size_t>(k % kPeriod)];
      if (result.get(k) != right) check(false, difference(names[i], k, result.get(k), right));
    }
  }
}

}  // namespace

TEST_CASE("allreduce: every dtype, reduction and awkward size") {
  for (const Case& each : cases()) {
    for (std::int64_t fusion : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{128} << 20}) {
      DYNAMIC_SECTION(describe(each) << ", fusion threshold " << fusion) {
        run_all(options_of(each, fusion), [&](Communicator& communicator) {
          for (hora_dtype dtype : all_dtypes()) {
            for (hora_reduce_op op : reductions_of(dtype)) {
              allreduce_sizes(communicator, dtype, op, kSizes, fusion == 0);
            }
          }
        });
      }
    }
  }
}

TEST_CASE("allreduce: sizes that cross every algorithm's and segment's border") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each, 0), [&](Communicator& communicator) {
        for (hora_dtype dtype : {HORA_FLOAT32, HORA_BFLOAT16, HORA_INT8}) {
          allreduce_sizes(communicator, dtype, HORA_SUM,
                          {8191, 8192, 8193, 32768, 65537, 131072, 262147, 1048576, 1500001}, true);
        }
      });
    }
  }
}

TEST_CASE("allreduce: scaling before and after, integers truncate toward zero") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        for (hora_dtype dtype : all_dtypes()) {
          if (dtype == HORA_BOOL || dtype == HORA_UINT8 || dtype == HORA_UINT16) continue;
          if (reductions_of(dtype).empty()) continue;
          Tensor input(dtype, {5});
          Tensor output(dtype, {5});
          for (int i = 0; i < 5; ++i) input.set(i, (i - 2) * 3);
          hora_request request = reduce_request("scaled", input, output);
          request.prescale = 2.0;
          request.postscale = 0.25;
          Call(communicator, request).finish();
          for (int i = 0; i < 5; ++i) {
            double expected = (i - 2) * 3 * 2.0 * n * 0.25;
            if (!collectives::is_floating(dtype)) expected = static_cast<int>(expected);
            check(output.get(i) == expected, difference("scaled", i, output.get(i), expected));
          }
          Call(communicator, reduce_request("averaged", input, output, HORA_AVERAGE)).finish();
          for (int i = 0; i < 5; ++i) {
            check(output.get(i) == (i - 2) * 3, "the average of equal values differs from them");
          }
        }
      });
    }
  }
}

namespace {

// The largest number of a dtype, the smallest, and one that is hard to divide, as bits.
std::vector<std::int64_t> extremes_of(hora_dtype dtype) {
  switch (dtype) {
    case HORA_UINT8:
      return {0xFF, 200};
    case HORA_INT8:
      return {0x7F, -0x80};
    case HORA_UINT16:
      return {0xFFFF};
    case HORA_INT16:
      return {0x7FFF, -0x8000};
    case HORA_INT32:
      return {INT32_MAX, INT32_MIN};
    case HORA_INT64:
      return {INT64_MAX, INT64_MIN, INT64_MAX - 1};
    case HORA_FLOAT16:
      return test_device() == HORA_CPU_DEVICE ? std::vector<std::int64_t>{0x7BFF, 0xFBFF, 1}
                                              : std::vector<std::int64_t>{0x7BFF, 0xFBFF};
    case HORA_BFLOAT16:
      return {0x7F7F, 0xFF7F};
    default:
      return {};
  }
}

void set_bits(Tensor& tensor, std::int64_t index, std::int64_t bits) {
  const std::size_t width = collectives::dtype_bytes(tensor.dtype());
  std::memcpy(static_cast<char*>(tensor.data()) + static_cast<std::size_t>(index) * width, &bits,
              width);
}

void expect_average(Communicator& communicator, Tensor& input, Tensor& expected, bool in_place) {
  Tensor output(input.dtype(), input.shape());
  Tensor& target = in_place ? input : output;
  Tensor scattered = input;
  Call(communicator, reduce_request("average", input, target, HORA_AVERAGE)).finish();
  const std::size_t width = collectives::dtype_bytes(input.dtype());
  const auto bytes = static_cast<std::size_t>(input.count()) * width;
  check(std::memcmp(target.data(), expected.data(), bytes) == 0,
        "average of " + std::string(collectives::dtype_name(input.dtype())) + " of " +
            std::to_string(input.count()) + ": " + std::to_string(target.get(0)) + " instead of " +
            std::to_string(expected.get(0)));
  hora_request request = result_request(HORA_REDUCESCATTER, "scattered average", scattered);
  request.reduce_op = HORA_AVERAGE;
  Call call(communicator, request);
  call.finish();
  const auto parts = collectives::even_rows(input.count(), communicator.world().settings.size);
  const int rank = rank_of(communicator);
  const std::int64_t before = std::accumulate(parts.begin(), parts.begin() + rank, INT64_C(0));
  check(std::memcmp(call.result(),
                    static_cast<char*>(expected.data()) + static_cast<std::size_t>(before) * width,
                    static_cast<std::size_t>(parts[static_cast<std::size_t>(rank)]) * width) == 0,
        "scattered average of " + std::string(collectives::dtype_name(input.dtype())));
}

}  // namespace

TEST_CASE("averages: one of representable numbers is representable, whatever their sum") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        for (hora_dtype dtype : all_dtypes()) {
          const std::vector<std::int64_t> extremes = extremes_of(dtype);
          for (const std::int64_t size : {5, 3001}) {
            if (extremes.empty()) continue;
            Tensor equal(dtype, {size});
            for (std::int64_t i = 0; i < size; ++i) {
              set_bits(equal, i, extremes[static_cast<std::size_t>(i) % extremes.size()]);
            }
            Tensor input = equal;
            expect_average(communicator, input, equal, size == 5);
            // A sum that overflows on the way to a small one.
            Tensor signs(dtype, {size});
            Tensor zeros(dtype, {size});
            const bool has_signs = dtype != HORA_UINT8 && dtype != HORA_UINT16;
            if (!has_signs || n % 2 != 0 || test_device() != HORA_CPU_DEVICE) continue;
            for (std::int64_t i = 0; i < size; ++i) {
              set_bits(signs, i, extremes[rank_of(communicator) < n / 2 ? 0 : 1]);
              set_bits(zeros, i, 0);
            }
            expect_average(communicator, signs, zeros, size != 5);
          }
        }
      });
    }
  }
}

TEST_CASE("minimum and maximum: a NaN of any rank is kept, on every backend") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        for (hora_dtype dtype : all_dtypes()) {
          if (!collectives::is_floating(dtype)) continue;
          for (hora_reduce_op op : {HORA_MIN, HORA_MAX}) {
            for (const std::int64_t size : {37, 30011}) {
              Tensor input(dtype, {size});
              Tensor output(dtype, {size});
              fill(input, rank_of(communicator));
              // Element i is a NaN on rank i % (n + 1), and on none where that is n.
              for (std::int64_t i = rank_of(communicator); i < size; i += n + 1) {
                input.set(i, std::numeric_limits<double>::quiet_NaN());
              }
              Call(communicator, reduce_request("extreme", input, output, op)).finish();
              for (std::int64_t i = 0; i < size; ++i) {
                const double right = reduced(dtype, op, all_ranks(communicator), i);
                const double found = output.get(i);
                check(i % (n + 1) == n ? found == right : std::isnan(found),
                      difference("extreme of " + std::string(collectives::dtype_name(dtype)), i,
                                 found, right));
              }
            }
          }
        }
      });
    }
  }
}

TEST_CASE("allgather: every dtype, first dimensions that differ, empty parts") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        const int rank = rank_of(communicator);
        for (hora_dtype dtype : all_dtypes()) {
          for (std::int64_t base : {0, 1, 3, 700}) {
            const auto rows_of = [&](int r) { return r == 1 ? 0 : base + r * 2; };
            Tensor input(dtype, {rows_of(rank), 3});
            fill(input, rank);
            Call call(communicator, result_request(HORA_ALLGATHER, "gathered", input));
            call.finish();
            const auto operation = call.operation();
            std::int64_t total = 0;
            std::int64_t place = 0;
            for (int r = 0; r < n; ++r) {
              total += rows_of(r);
              for (std::int64_t i = 0; i < rows_of(r) * 3; ++i, ++place) {
                const double found = read_element(call.result(), dtype, place);
                check(found == value_at(dtype, r, i),
                      difference("gathered", place, found, value_at(dtype, r, i)));
              }
            }
            check(operation->result_shape == std::vector<std::int64_t>{total, 3},
                  "the gathered shape is wrong");
          }
        }
      });
    }
  }
}

TEST_CASE("broadcast: every dtype, root and size; in place and not") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        for (hora_dtype dtype : all_dtypes()) {
          for (int root = 0; root < n; ++root) {
            for (std::int64_t size : {0, 1, 17, 4097}) {
              Tensor input(dtype, {size});
              Tensor output(dtype, {size});
              fill(input, rank_of(communicator));
              Tensor& target = size % 2 == 0 ? output : input;
              Call(communicator, broadcast_request("sent", input, target, root)).finish();
              for (std::int64_t i = 0; i < size; ++i) {
                check(target.get(i) == value_at(dtype, root, i),
                      difference("sent", i, target.get(i), value_at(dtype, root, i)));
              }
            }
          }
        }
        Tensor large(HORA_UINT8, {3'000'001});
        fill(large, rank_of(communicator));
        Call(communicator, broadcast_request("large", large, large, n - 1)).finish();
        for (std::int64_t i = 0; i < large.count(); i += 997) {
          check(large.get(i) == value_at(HORA_UINT8, n - 1, i), "a large broadcast is wrong");
        }
      });
    }
  }
}

TEST_CASE("alltoall: every dtype, splits that differ, no splits") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        const int rank = rank_of(communicator);
        const auto rows = [](int from, int to) { return std::int64_t{(from * 2 + to) % 4}; };
        for (hora_dtype dtype : all_dtypes()) {
          std::vector<std::int64_t> splits;
          for (int to = 0; to < n; ++to) splits.push_back(rows(rank, to));
          const std::int64_t total = std::accumulate(splits.begin(), splits.end(), INT64_C(0));
          Tensor input(dtype, {total, 2});
          std::int64_t place = 0;
          for (int to = 0; to < n; ++to) {
            for (std::int64_t i = 0; i < rows(rank, to) * 2; ++i) {
              input.set(place++, value_at(dtype, rank, to * 100 + i));
            }
          }
          hora_request request = result_request(HORA_ALLTOALL, "exchanged", input);
          request.splits = splits.data();
          request.split_count = n;
          Call call(communicator, request);
          call.finish();
          place = 0;
          for (int from = 0; from < n; ++from) {
            check(call.operation()->received_splits[static_cast<std::size_t>(from)] ==
                      rows(from, rank),
                  "the received splits are wrong");
            for (std::int64_t i = 0; i < rows(from, rank) * 2; ++i, ++place) {
              const double found = read_element(call.result(), dtype, place);
              const double expected = value_at(dtype, from, rank * 100 + i);
              check(found == expected, difference("exchanged", place, found, expected));
            }
          }
          Tensor even(dtype, {n * 5});
          fill(even, rank);
          Call plain(communicator, result_request(HORA_ALLTOALL, "even", even));
          plain.finish();
          for (std::int64_t i = 0; i < n * 5; ++i) {
            const double expected = value_at(dtype, static_cast<int>(i / 5), rank * 5 + i % 5);
            check(read_element(plain.result(), dtype, i) == expected, "an even alltoall is wrong");
          }
        }
      });
    }
  }
}

TEST_CASE("reducescatter: every dtype, rows that do not divide evenly") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        const int rank = rank_of(communicator);
        for (hora_dtype dtype : all_dtypes()) {
          for (hora_reduce_op op : reductions_of(dtype)) {
            for (std::int64_t rows : {0, 1, 2, 7, 1001}) {
              Tensor input(dtype, {rows, 3});
              fill(input, rank);
              hora_request request = result_request(HORA_REDUCESCATTER, "scattered", input);
              request.reduce_op = op;
              Call call(communicator, request);
              call.finish();
              const auto parts = collectives::even_rows(rows, n);
              const std::int64_t before =
                  std::accumulate(parts.begin(), parts.begin() + rank, INT64_C(0)) * 3;
              const std::int64_t mine = parts[static_cast<std::size_t>(rank)];
              check(call.operation()->result_shape == std::vector<std::int64_t>{mine, 3},
                    "the scattered shape is wrong");
              for (std::int64_t i = 0; i < mine * 3; ++i) {
                const double expected = reduced(dtype, op, all_ranks(communicator), before + i);
                const double found = read_element(call.result(), dtype, i);
                check(found == expected, difference("scattered", i, found, expected));
              }
            }
          }
        }
      });
    }
  }
}

TEST_CASE("process sets: each reduces among its own members, those made at start and later") {
  for (const Case& each : cases()) {
    if (each.size < 3) continue;
    DYNAMIC_SECTION(describe(each)) {
      WorldOptions options = options_of(each);
      options.process_sets = {{0, each.size - 1}};
      run_all(options, [&](Communicator& communicator) {
        const int rank = rank_of(communicator);
        std::vector<int> later;
        for (int member = 1; member < each.size; ++member) later.push_back(member);
        std::int32_t added = 0;
        check(communicator.add_process_set(later, &added).status == HORA_OK, "no set was added");
        const std::pair<std::int32_t, std::vector<int>> sets[] = {
            {1, {0, each.size - 1}}, {added, later}, {0, all_ranks(communicator)}};
        for (const auto& [id, members] : sets) {
          if (std::count(members.begin(), members.end(), rank) == 0) continue;
          Tensor tensor(HORA_FLOAT32, {100});
          fill(tensor, rank);
          hora_request request = reduce_request("of a set", tensor, tensor);
          request.process_set = id;
          Call(communicator, request).finish();
          for (std::int64_t i = 0; i < 100; ++i) {
            const double expected = reduced(HORA_FLOAT32, HORA_SUM, members, i);
            check(tensor.get(i) == expected, difference("of a set", i, tensor.get(i), expected));
          }
        }
        check(communicator.remove_process_set(added).status == HORA_OK, "the set stays");
      });
    }
  }
}

TEST_CASE("barrier: no rank passes before all ranks arrive") {
  for (const Case& each : cases()) {
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        const int n = communicator.world().settings.size;
        SharedCounter arrived(communicator);
        for (int round = 1; round <= 20; ++round) {
          ++arrived.value();
          Call(communicator, bare_request(HORA_BARRIER)).finish();
          check(arrived.value().load() >= n * round, "a rank passed a barrier early");
        }
      });
    }
  }
}

TEST_CASE("every size from 0 to 4097", "[long]") {
  for (const Case& each : cases()) {
    if (each.size != 1 && each.size != 3) continue;
    DYNAMIC_SECTION(describe(each)) {
      run_all(options_of(each), [&](Communicator& communicator) {
        for (std::int64_t first = 0; first <= 4097; first += 241) {
          std::vector<std::int64_t> sizes;
          for (std::int64_t i = first; i < first + 241 && i <= 4097; ++i) sizes.push_back(i);
          allreduce_sizes(communicator, HORA_FLOAT32, HORA_SUM, sizes, true);
        }
      });
    }
  }
}
