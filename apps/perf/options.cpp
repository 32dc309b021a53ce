// SPDX-License-Identifier: Apache-2.0
// Every rank parses the same arguments and comes to the same result, so errors need no agreement.
#include "apps/perf/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace hora::perf {

namespace {

template <typename Value>
using Names = std::vector<std::pair<std::string_view, Value>>;

const Names<hora_operation>& operations() {
  static const Names<hora_operation> names{
      {"allreduce", HORA_ALLREDUCE}, {"allgather", HORA_ALLGATHER},
      {"broadcast", HORA_BROADCAST}, {"reducescatter", HORA_REDUCESCATTER},
      {"alltoall", HORA_ALLTOALL},   {"barrier", HORA_BARRIER}};
  return names;
}

const Names<hora_dtype>& dtypes() {
  static const Names<hora_dtype> names{
      {"uint8", HORA_UINT8},     {"int8", HORA_INT8},        {"uint16", HORA_UINT16},
      {"int16", HORA_INT16},     {"int32", HORA_INT32},      {"int64", HORA_INT64},
      {"float16", HORA_FLOAT16}, {"float32", HORA_FLOAT32},  {"float64", HORA_FLOAT64},
      {"bool", HORA_BOOL},       {"bfloat16", HORA_BFLOAT16}};
  return names;
}

const Names<hora_reduce_op>& reductions() {
  static const Names<hora_reduce_op> names{{"sum", HORA_SUM},
                                           {"average", HORA_AVERAGE},
                                           {"min", HORA_MIN},
                                           {"max", HORA_MAX},
                                           {"product", HORA_PRODUCT}};
  return names;
}

// Whether it is a GPU.
const Names<bool>& devices() {
  static const Names<bool> names{{"cpu", false}, {"gpu", true}};
  return names;
}

template <typename Value>
std::string_view name_in(const Names<Value>& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "unknown";
}

template <typename Value>
std::string choose(std::string_view what, const std::string& text, const Names<Value>& names,
                   Value& out) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == text) {
      out = value;
      return {};
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return std::string(what) + " '" + text + "' is unknown; expected one of " + known;
}

// from_chars() takes no "+", no blanks and no locale: what is valid is the same everywhere.
bool parse_whole(std::string_view text, std::int64_t& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() && value >= 0;
}

// Parses 4, 64K, 2M, 1G; the units are powers of 1024.
bool parse_bytes(std::string_view text, std::int64_t& bytes) {
  if (text.empty()) return false;
  int shift = 0;
  switch (text.back()) {
    case 'K':
    case 'k':
      shift = 10;
      break;
    case 'M':
    case 'm':
      shift = 20;
      break;
    case 'G':
    case 'g':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift > 0) text.remove_suffix(1);
  // The limit applies before the shift, so nothing overflows.
  if (!parse_whole(text, bytes) || bytes > (INT64_C(1) << 40 >> shift)) return false;
  bytes <<= shift;
  return true;
}

// Below it the size after the last one cannot overflow: each is at most 2^40.
constexpr std::int64_t kMostFactor = 1 << 20;

// Parses a size, FROM..TO, or FROM..TO*FACTOR.
bool add_sizes(std::string_view item, std::vector<std::int64_t>& sizes) {
  std::int64_t first = 0;
  const std::size_t dots = item.find("..");
  if (dots == std::string_view::npos) {
    if (!parse_bytes(item, first)) return false;
    sizes.push_back(first);
    return true;
  }
  std::string_view rest = item.substr(dots + 2);
  std::int64_t factor = 4;
  if (const std::size_t star = rest.find('*'); star != std::string_view::npos) {
    const bool is_whole = parse_whole(rest.substr(star + 1), factor);
    if (!is_whole || factor < 2 || factor > kMostFactor) return false;
    rest = rest.substr(0, star);
  }
  std::int64_t last = 0;
  if (!parse_bytes(item.substr(0, dots), first) || !parse_bytes(rest, last)) return false;
  // A range from 0 would never grow.
  if (first < 1 || last < first) return false;
  for (std::int64_t size = first; size <= last; size *= factor) sizes.push_back(size);
  return true;
}

std::string parse_sizes(const std::string& text, std::vector<std::int64_t>& sizes) {
  sizes.clear();
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    if (!add_sizes(rest.substr(0, comma), sizes)) {
      return "--sizes '" + text +
             "' is not a list of sizes; expected for example 4,64K,1M or 4..64M or 1K..1G*2";
    }
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
}

std::string parse_number(const std::string& name, const std::string& text, int least, int& out) {
  std::int64_t value = 0;
  if (!parse_whole(text, value) || value < least || value > 1'000'000'000) {
    return name + " '" + text + "' is not a whole number from " + std::to_string(least);
  }
  out = static_cast<int>(value);
  return {};
}

std::string parse_seconds(const std::string& text, double& out) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value > 0 && value < 1e6)) {
    return "--seconds '" + text + "' is not a time, such as 0.5";
  }
  out = value;
  return {};
}

std::string parse_valued(const std::string& name, const std::string& value, Options& options) {
  if (name == "--sizes") return parse_sizes(value, options.sizes);
  if (name == "--dtype") return choose("--dtype", value, dtypes(), options.dtype);
  if (name == "--op") return choose("--op", value, reductions(), options.op);
  if (name == "--device") return choose("--device", value, devices(), options.gpu);
  if (name == "--root") return parse_number(name, value, 0, options.root);
  if (name == "--warm-up") return parse_number(name, value, 0, options.warm_up);
  if (name == "--iterations") return parse_number(name, value, 1, options.iterations);
  return parse_seconds(value, options.seconds);
}

bool takes_value(const std::string& name) {
  for (std::string_view each : {"--sizes", "--dtype", "--op", "--device", "--root", "--warm-up",
                                "--iterations", "--seconds"}) {
    if (each == name) return true;
  }
  return false;
}

bool parse_flag(const std::string& name, Options& options) {
  if (name == "--no-check") {
    options.check = false;
  } else if (name == "--in-place") {
    options.in_place = true;
  } else if (name == "--prepared") {
    options.prepared = true;
  } else if (name == "--csv") {
    options.format = Format::kCsv;
  } else if (name == "--json") {
    options.format = Format::kJson;
  } else if (name == "--help" || name == "-h") {
    options.help = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string_view name_of(hora_operation operation) { return name_in(operations(), operation); }
std::string_view name_of(hora_dtype dtype) { return name_in(dtypes(), dtype); }
std::string_view name_of(hora_reduce_op op) { return name_in(reductions(), op); }

std::string_view usage() {
  return "usage: horarun -np N [options of horarun] hora-perf [OPERATION] [options]\n"
         "\n"
         "Measures a collective of Hora's runtime on the ranks of this job, and checks its "
         "results.\n"
         "\n"
         "  OPERATION           allreduce (default), allgather, broadcast, reducescatter, "
         "alltoall,\n"
         "                      barrier\n"
         "  --sizes LIST        bytes: 4,64K,1M, or FROM..TO[*FACTOR]; default 4..64M (factor 4).\n"
         "                      allgather: of the result; alltoall, reducescatter: of the input\n"
         "  --dtype NAME        default float32\n"
         "  --op NAME           sum (default), average, min, max, product\n"
         "  --device NAME       where the tensors are: cpu (default), gpu (the GPU with the "
         "number\n"
         "                      of the local rank)\n"
         "  --root RANK         of a broadcast; default 0\n"
         "  --seconds S         for each size, about; default 0.5\n"
         "  --iterations N      for each size, instead\n"
         "  --warm-up N         calls that are not counted; default 5\n"
         "  --in-place          input and output are the same memory (allreduce, broadcast)\n"
         "  --prepared          prepare the operation once and start it each time (allreduce,\n"
         "                      broadcast)\n"
         "  --no-check          do not look at the results\n"
         "  --csv, --json       instead of a table\n"
         "\n"
         "hora-perf plot draws what --csv and --json have kept: hora-perf plot --help\n"
         "\n"
         "Exit code: 0; 1 when a result is wrong or the job fails; 2 for wrong usage.\n";
}

std::string parse_options(const std::vector<std::string>& arguments, Options& options) {
  bool has_operation = false;
  parse_sizes("4..64M", options.sizes);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    if (name.empty() || name[0] != '-') {
      if (has_operation) return "'" + name + "' is one argument too many";
      has_operation = true;
      if (auto problem = choose("the operation", name, operations(), options.operation);
          !problem.empty()) {
        return problem;
      }
      continue;
    }
    if (parse_flag(name, options)) continue;
    std::string value;
    const std::size_t equals = name.find('=');
    const bool inline_value = equals != std::string::npos;
    if (inline_value) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (!takes_value(name)) return "option '" + name + "' is unknown";
    if (!inline_value) {
      if (++i == arguments.size()) return "option '" + name + "' needs a value";
      value = arguments[i];
    }
    if (auto problem = parse_valued(name, value, options); !problem.empty()) return problem;
  }
  // A barrier has no size.
  if (options.operation == HORA_BARRIER) options.sizes = {0};
  // The runtime would refuse each call; here it is a mistake in the command line, exit code 2.
  if (options.dtype == HORA_BOOL && options.op == HORA_AVERAGE)
    return "bool tensors have no average";
  return {};
}

}  // namespace hora::perf
