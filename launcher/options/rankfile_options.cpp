// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/rankfile_options.h"

#include <string>
#include <string_view>

#include "launcher/plan/rankfile.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kMapping = "rankfile:";

bool is_mapping(const OptionValues& values) {
  return values.text("--map-by").starts_with(kMapping);
}

// Open MPI writes its qualifiers in capitals and in small letters.
Result<std::string> path_of(const OptionValues& values) {
  if (!is_mapping(values)) return values.text("--rankfile");
  constexpr std::string_view kKey = "file=";
  const std::string text = values.text("--map-by");
  const std::string_view rest = std::string_view(text).substr(kMapping.size());
  if (rest.size() == kKey.size() || !equals_ignoring_case(rest.substr(0, kKey.size()), kKey)) {
    return usage("--map-by: expected rankfile:file=FILE, found " + quote(text));
  }
  return std::string(rest.substr(kKey.size()));
}

// Each of these says where ranks run, too, or changes which ranks there are.
Status check_rivals(const OptionValues& values, const JobSpec& job) {
  if (job.elastic) return usage("--rankfile cannot be used with elastic jobs");
  if (job.by_mpirun) {
    return usage(
        "--rankfile cannot be used with --mpi; --mpi-args '--rankfile FILE' is for mpirun");
  }
  if (job.listen) {
    return usage("--rankfile cannot be used with --listen: which hosts come is not known before");
  }
  const bool maps = is_mapping(values);
  for (const char* option : {maps ? "--rankfile" : "--map-by", "--nproc-per-node", "--bind"}) {
    if (values.has(option)) {
      return usage(std::string(option) + " cannot be used with " +
                   (maps ? "--map-by rankfile" : "--rankfile") + ", which places each rank");
    }
  }
  return Ok{};
}

}  // namespace

bool has_rankfile(const OptionValues& values) {
  return values.has("--rankfile") || is_mapping(values);
}

Status read_rankfile(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  if (!has_rankfile(values)) return Ok{};
  // Before the file is read: a contradiction is there whatever the file says.
  HORA_TRY(check_rivals(values, job));
  const auto path = path_of(values);
  if (!path) return path.error();
  const auto text = inputs.read_file(*path);
  if (!text) return usage("--rankfile: " + text.error().message);
  const auto lines = parse_rankfile(*text, *path);
  if (!lines) return lines.error();
  return seat_ranks(*lines, *path, job);
}

}  // namespace hora::launcher
