// SPDX-License-Identifier: Apache-2.0
// Reads both Horovod's own configuration files, whose keys are in the table below, and the section
// "horarun", whose keys are the names of options. A key that looks like a misspelt one is an error:
// a typo would otherwise go unnoticed for months. Horovod's sections may have others, for releases
// and tools that we do not know; those are reported. Each error names line and column.
#include "launcher/options/config_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "launcher/options/option_check.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kOwnSection = "horarun";
constexpr std::size_t kLargest = 1u << 20;
constexpr std::string_view kMergeKey = "<<";
constexpr int kMostMerges = 100;

struct Entries {
  std::vector<std::pair<YAML::Node, YAML::Node>> list;
  std::set<std::string> names;

  void add(const YAML::Node& key, const YAML::Node& value) {
    if (names.insert(key.Scalar()).second) list.emplace_back(key, value);
  }
};

struct ConfigKey {
  std::string_view section;
  std::string_view key;
  std::string_view option;
  std::string_view when_false = {};  // not empty: a switch
};

// Horovod's sections and keys. The rows of a section are adjacent; read_section() relies on it.
constexpr ConfigKey kKeys[] = {
    {"params", "fusion_threshold_mb", "--fusion-threshold-mb"},
    {"params", "cycle_time_ms", "--cycle-time-ms"},
    {"params", "cache_capacity", "--cache-capacity"},
    {"params", "hierarchical_allreduce", "--hierarchical-allreduce", "--no-hierarchical-allreduce"},
    {"params", "hierarchical_allgather", "--hierarchical-allgather", "--no-hierarchical-allgather"},
    {"params", "torus_allreduce", "--torus-allreduce", "--no-torus-allreduce"},
    {"autotune", "enabled", "--autotune", "--no-autotune"},
    {"autotune", "log_file", "--autotune-log-file"},
    {"autotune", "warmup_samples", "--autotune-warmup-samples"},
    {"autotune", "steps_per_sample", "--autotune-steps-per-sample"},
    {"autotune", "bayes_opt_max_samples", "--autotune-bayes-opt-max-samples"},
    {"autotune", "gaussian_process_noise", "--autotune-gaussian-process-noise"},
    {"timeline", "filename", "--timeline-filename"},
    {"timeline", "mark_cycles", "--timeline-mark-cycles", "--no-timeline-mark-cycles"},
    {"stall_check", "enabled", "--stall-check", "--no-stall-check"},
    {"stall_check", "warning_time_seconds", "--stall-check-warning-time-seconds"},
    {"stall_check", "shutdown_time_seconds", "--stall-check-shutdown-time-seconds"},
    {"library_options", "mpi_threads_disable", "--mpi-threads-disable", "--no-mpi-threads-disable"},
    {"library_options", "num_nccl_streams", "--num-nccl-streams"},
    {"library_options", "thread_affinity", "--thread-affinity"},
    {"library_options", "gloo_timeout_seconds", "--gloo-timeout-seconds"},
    {"logging", "level", "--log-level"},
    {"logging", "with_timestamp", "--log-with-timestamp", "--log-without-timestamp"},
};

std::string with_dashes(std::string_view key) {
  std::string out(key);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  // An empty file is a valid configuration without settings.
  Status read(const YAML::Node& root) {
    if (!root.IsDefined() || root.IsNull()) return Ok{};
    if (!root.IsMap()) return wrong(root, "expected sections such as 'params:'");
    Entries sections;
    HORA_TRY(collect(root, "", sections));
    for (const auto& [key, value] : sections.list) HORA_TRY(read_section(key, value));
    return Ok{};
  }

  std::vector<Setting> take() { return std::move(settings_); }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string place(const YAML::Node& node) const {
    const YAML::Mark mark = node.Mark();
    return path_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  }

  // YAML counts lines and columns from 0.
  Error wrong(const YAML::Node& node, const std::string& what) const {
    return make_error(ErrorCode::kUsage, place(node) + ": " + what);
  }

  Status unknown(const YAML::Node& key, const std::string& where,
                 const std::vector<std::string>& known) {
    const std::string name = with_dashes(key.Scalar());
    if (where.empty() && find_option("--" + name, kVerbLaunch) != nullptr) {
      warnings_.push_back(place(key) + ": " + quote(key.Scalar()) + " belongs under '" +
                          std::string(kOwnSection) + ":'; it is ignored here");
      return Ok{};
    }
    const std::string what = "unknown key " + quote(key.Scalar()) + where;
    const auto close = did_you_mean(key.Scalar(), known);
    if (!close.empty()) return wrong(key, what + "; did you mean " + close[0] + "?");
    warnings_.push_back(place(key) + ": " + what + " is ignored; known are " + join(known, ", "));
    return Ok{};
  }

  // YAML forbids duplicate keys, but the library silently keeps one of them.
  Status check_twice(const YAML::Node& map, const std::string& where) const {
    std::map<std::string, std::string> seen;
    for (const auto& item : map) {
      if (!item.first.IsScalar()) return wrong(item.first, "expected a name as the key");
      const auto [old, is_new] = seen.emplace(item.first.Scalar(), place(item.first));
      if (!is_new) {
        return wrong(item.first, quote(item.first.Scalar()) + where +
                                     " is given twice, before at " + old->second);
      }
    }
    return Ok{};
  }

  // Adds the entries of `map`, and those of the sections that its merge key names where the map has
  // none of that name. The library takes a merge key for an ordinary one
  // (findings/yaml-cpp-readings.sh).
  Status collect(const YAML::Node& map, const std::string& where, Entries& entries) {
    HORA_TRY(check_twice(map, where));
    for (const auto& item : map) {
      if (item.first.Scalar() != kMergeKey) entries.add(item.first, item.second);
    }
    const YAML::Node merged = map[std::string(kMergeKey)];
    if (!merged) return Ok{};
    // A section may name itself, so their number is limited.
    const auto add_section = [&](const YAML::Node& section) -> Status {
      if (!section.IsMap())
        return wrong(section, "<<: expected an alias of a section, such as *base");
      if (++merges_ > kMostMerges) return wrong(merged, "<<: too many sections are merged");
      return collect(section, where, entries);
    };
    if (!merged.IsSequence()) return add_section(merged);
    for (const auto& section : merged) HORA_TRY(add_section(section));
    return Ok{};
  }

  Status read_section(const YAML::Node& key, const YAML::Node& value) {
    const std::string& name = key.Scalar();
    // In Horovod's format, this top-level key has a value and no section.
    if (name == "controller") return read_controller(value);
    std::vector<std::string> sections{std::string(kOwnSection), "controller"};
    for (const ConfigKey& row : kKeys) {
      if (sections.back() != row.section) sections.emplace_back(row.section);
    }
    if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
      return unknown(key, "", sections);
    }
    // A section whose keys are all commented out is empty.
    if (value.IsNull()) return Ok{};
    if (!value.IsMap()) return wrong(value, "expected keys with values in section " + quote(name));
    Entries entries;
    HORA_TRY(collect(value, " in section '" + name + "'", entries));
    for (const auto& [entry, setting] : entries.list) {
      HORA_TRY(name == kOwnSection ? read_own(entry, setting) : read_known(name, entry, setting));
    }
    return Ok{};
  }

  Status read_controller(const YAML::Node& value) {
    const std::string name = value.IsScalar() ? value.Scalar() : "";
    for (const std::string_view known : {"gloo", "mpi"}) {
      if (equals_ignoring_case(name, known)) {
        return add(value, "controller", "--" + std::string(known), "");
      }
    }
    return wrong(value, "controller: expected gloo or mpi, found " + quote(name));
  }

  Status read_known(const std::string& section, const YAML::Node& key, const YAML::Node& value) {
    std::vector<std::string> known;
    for (const ConfigKey& row : kKeys) {
      if (row.section != section) continue;
      known.emplace_back(row.key);
      if (row.key != key.Scalar()) continue;
      const std::string name = section + "." + key.Scalar();
      if (value.IsSequence()) return read_list(*find_option(row.option, kVerbLaunch), value, name);
      HORA_TRY(expect_scalar(value, name));
      if (row.when_false.empty()) return add(value, name, row.option, value.Scalar());
      const auto on = parse_switch(value.Scalar());
      if (!on)
        return wrong(value, name + ": expected true or false, found " + quote(value.Scalar()));
      return add(value, name, *on ? row.option : row.when_false, "");
    }
    return unknown(key, " in section '" + section + "'", known);
  }

  // An empty value is most likely an unfinished edit.
  Status expect_scalar(const YAML::Node& value, const std::string& name) const {
    if (value.IsScalar() && !value.Scalar().empty()) return Ok{};
    return wrong(value, name + ": expected one value, found " +
                            (value.IsSequence() ? "a list"
                             : value.IsMap()    ? "a section"
                                                : "none"));
  }

  // Keys may have underscores or dashes.
  Status read_own(const YAML::Node& key, const YAML::Node& value) {
    const OptionRow* row = find_option("--" + with_dashes(key.Scalar()), kVerbLaunch);
    if (row == nullptr || !is_configurable(*row)) {
      std::vector<std::string> known;
      for (const OptionRow& other : option_table()) {
        if ((other.verbs & (kVerbLaunch | kVerbKubernetes)) != 0 && is_configurable(other) &&
            !other.has(kHidden)) {
          known.emplace_back(long_name(other).substr(2));
        }
      }
      std::string what = "unknown key " + quote(key.Scalar()) + " in section 'horarun'";
      const auto close = did_you_mean(with_dashes(key.Scalar()), known);
      if (!close.empty()) what += "; did you mean " + close.front() + "?";
      if (row != nullptr)
        what += "; --" + with_dashes(key.Scalar()) + " is for the command line only";
      return wrong(key, what);
    }
    const std::string name = std::string(kOwnSection) + "." + key.Scalar();
    if (!row->takes_value()) return read_own_flag(*row, value, name);
    if (value.IsSequence()) return read_list(*row, value, name);
    HORA_TRY(expect_scalar(value, name));
    return add(value, name, long_name(*row), value.Scalar());
  }

  Status read_own_flag(const OptionRow& row, const YAML::Node& value, const std::string& name) {
    HORA_TRY(expect_scalar(value, name));
    const auto on = parse_switch(value.Scalar());
    if (!on) return wrong(value, name + ": expected true or false, found " + quote(value.Scalar()));
    if (*on) return add(value, name, long_name(row), "");
    if (const OptionRow* other = opposite_of(row)) return add(value, name, long_name(*other), "");
    // The option has no opposite: record that the file switches it off, so that a lower layer
    // cannot switch it on.
    settings_.push_back({&row, "", place(value) + ": " + name, true, false});
    return Ok{};
  }

  // A list repeats an option, or is one value of several numbers.
  Status read_list(const OptionRow& row, const YAML::Node& value, const std::string& name) {
    const std::string_view between = row.kind == ValueKind::kCountPair   ? " "
                                     : row.kind == ValueKind::kCountList ? ","
                                                                         : "";
    if (between.empty() && !row.has(kRepeats)) return expect_scalar(value, name);
    std::vector<std::string> items;
    for (const auto& item : value) {
      HORA_TRY(expect_scalar(item, name));
      items.push_back(item.Scalar());
    }
    if (items.empty()) return wrong(value, name + ": the list is empty");
    if (!between.empty()) return add(value, name, long_name(row), join(items, between));
    for (const std::string& item : items) HORA_TRY(add(value, name, long_name(row), item));
    return Ok{};
  }

  Status add(const YAML::Node& at, const std::string& name, std::string_view option,
             const std::string& value) {
    const OptionRow* row = find_option(option, kVerbLaunch);
    const std::string origin = place(at) + ": " + name;
    // The checks are those of the command line, with the place in the file for context.
    const std::string problem = check_option_value(*row, value);
    if (!problem.empty()) return wrong(at, name + ": " + problem);
    settings_.push_back({row, value, origin, false, false});
    return Ok{};
  }

  const std::string& path_;
  int merges_ = 0;
  std::vector<Setting> settings_;
  std::vector<std::string> warnings_;
};

}  // namespace

// These ask a question or choose the files; in a file they would surprise every later job.
bool is_configurable(const OptionRow& row) {
  for (const std::string_view name : {"--help", "--version", "--check-build", "--show-config",
                                      "--config-file", "--no-config", "--smoke", "--dry-run"}) {
    if (long_name(row) == name) return false;
  }
  return true;
}

std::optional<bool> parse_switch(std::string_view text) {
  for (const std::string_view word : {"true", "yes", "on", "1"}) {
    if (equals_ignoring_case(text, word)) return true;
  }
  for (const std::string_view word : {"false", "no", "off", "0"}) {
    if (equals_ignoring_case(text, word)) return false;
  }
  return std::nullopt;
}

const OptionRow* opposite_of(const OptionRow& row) {
  const std::string_view name = long_name(row).substr(2);
  const std::string other =
      name.substr(0, 3) == "no-" ? "--" + std::string(name.substr(3)) : "--no-" + std::string(name);
  return find_option(other, kVerbLaunch);
}

namespace {

// A handler that ignores the contents of a document.
class Ignore final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// Returns 2 for two or more. YAML::LoadAll never ends for some malformed texts, because the parser
// finds one empty document after another.
int count_documents(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore handler;
  int count = 0;
  while (count < 2 && parser.HandleNextDocument(handler)) ++count;
  return count;
}

}  // namespace

Result<std::vector<Setting>> read_config_file(std::string_view text, const std::string& path,
                                              std::vector<std::string>& warnings) {
  // A limit against a wrong path; real configurations have a few lines.
  if (text.size() > kLargest) {
    return make_error(ErrorCode::kUsage, path + ": larger than 1 MiB; not a configuration file");
  }
  try {
    const int documents = count_documents(std::string(text));
    if (documents > 1) {
      return make_error(ErrorCode::kUsage, path + ": expected one YAML document, found more");
    }
    Reader reader(path);
    if (documents == 1) HORA_TRY(reader.read(YAML::Load(std::string(text))));
    warnings.insert(warnings.end(), reader.warnings().begin(), reader.warnings().end());
    return reader.take();
    // The library reports errors by exceptions; this is the only place that sees them.
  } catch (const YAML::Exception& error) {
    const std::string where = error.mark.is_null()
                                  ? path
                                  : path + ":" + std::to_string(error.mark.line + 1) + ":" +
                                        std::to_string(error.mark.column + 1);
    const bool has_tab = text.starts_with('\t') || text.find("\n\t") != std::string_view::npos;
    return make_error(
        ErrorCode::kUsage,
        where + ": " + visible_line(error.msg) +
            (has_tab ? "; a line begins with a tab, and YAML is indented with spaces" : ""));
  }
}

std::string config_reference() {
  std::string out =
      "| Key | Option |\n|---|---|\n| `controller` | `--gloo` or `--mpi`, by the value `gloo` or "
      "`mpi` |\n";
  for (const ConfigKey& row : kKeys) {
    out += "| `" + std::string(row.section) + "." + std::string(row.key) + "` | `" +
           std::string(row.option) + "`";
    if (!row.when_false.empty())
      out += " when true, `" + std::string(row.when_false) + "` when false";
    out += " |\n";
  }
  return out + "| `horarun.NAME` | `--NAME`, any option but the questions such as `--help` |\n";
}

}  // namespace hora::launcher
