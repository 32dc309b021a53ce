// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/settings.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "launcher/options/config_file.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// The runtime takes its settings from variables, so a misspelt one changes nothing and says
// nothing. The list is that of docs/reference/runtime.md; a test compares the two.

namespace {

constexpr std::string_view kPrefix = "HORA_";

// Without those that horarun sets itself.
constexpr std::string_view kVariables[] = {
    "HORA_BACKENDS",
    "HORA_DETERMINISTIC",
    "HORA_GPU_TENSORS",
    "HORA_MODULE_PATH",
    "HORA_MPI",
    "HORA_NCCL",
    "HORA_NCCL_LIBRARY",
    "HORA_SHM_BYTES",
    "HORA_SHM_PART_BYTES",
    "HORA_SHM_SMALL_BYTES",
    "HORA_SIMD",
    "HORA_STAR_RANKS",
    "HORA_SYSTEM_CONFIG",
    "HORA_TIMELINE_LIMIT_MB",
    "HORA_TORCH_BACKEND",
};

}  // namespace

std::span<const std::string_view> runtime_variables() { return kVariables; }

// A name that is close to none may belong to another program: tests and jobs around this one have
// some, too.
std::vector<std::string> misspelt_runtime_variables(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::vector<std::string> known;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) ||
        std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) {
      continue;
    }
    if (known.empty()) {
      // The edit distance counts in what is not common to all.
      for (const std::string_view each : kVariables)
        known.emplace_back(each.substr(kPrefix.size()));
    }
    const auto close = did_you_mean(name.substr(kPrefix.size()), known);
    if (close.empty()) continue;
    out.push_back(name + " is set, and nothing reads it; did you mean " + std::string(kPrefix) +
                  close.front() + "?");
  }
  return out;
}

// Merges the layers of configuration. From the highest: the command line, --config-file, the
// environment, hora.yaml in the current directory, the user's file, the system's file.

namespace {

constexpr std::string_view kOurs = "HORARUN_";
constexpr std::string_view kProjectFile = "hora.yaml";
constexpr std::string_view kSystemFile = "/etc/hora/config.yaml";

Layer command_line_layer(const Spelled& typed) {
  Layer layer{"command line", {}};
  for (const SpelledOption& option : typed.options) {
    layer.settings.push_back({option.row, option.value.value_or(""), option.typed, false, false});
  }
  return layer;
}

// Variables that may set options; most environments have none of them.
std::vector<std::string> our_variables(const ProcessInputs& inputs) {
  std::vector<std::string> names;
  if (inputs.variable_names) names = inputs.variable_names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kOurs); });
  return names;
}

// A switch may be set to false, which selects its opposite or switches the option off.
Result<Setting> own_setting(const OptionRow& row, const std::string& name, std::string value) {
  Setting setting{&row, std::move(value), "$" + name, false, false};
  if (row.takes_value()) return setting;
  const auto on = parse_switch(setting.value);
  if (!on) return usage("$" + name + ": expected true or false, found " + quote(setting.value));
  setting.value.clear();
  const OptionRow* other = *on ? &row : opposite_of(row);
  if (other != nullptr) setting.row = other;
  setting.off = other == nullptr;
  return setting;
}

// HORARUN_* variables set options. A variable of the runtime, such as HOROVOD_CYCLE_TIME, reaches
// the ranks by itself; it is recorded here so that no file overrides it.
Result<Layer> environment_layer(const ProcessInputs& inputs, const std::vector<std::string>& ours) {
  const bool has_ours = !inputs.variable_names || !ours.empty();
  Layer layer{"environment", {}};
  std::set<std::string_view> inherited;
  for (const OptionRow& row : option_table()) {
    const auto knob = row.variable.empty() ? std::nullopt : inputs.variable(row.variable);
    // Usually neither exists, and no row has to be checked closely.
    if (!has_ours && !knob) continue;
    if ((row.verbs & (kVerbLaunch | kVerbKubernetes)) == 0 || !is_configurable(row)) continue;
    // An option may have several names, and so several variables, which must not contradict each
    // other.
    bool is_set = false;
    for (const std::string& name : has_ours ? variables_of(row) : std::vector<std::string>{}) {
      auto value = inputs.variable(name);
      if (!value || value->empty()) continue;
      auto setting = own_setting(row, name, *std::move(value));
      if (!setting) return std::move(setting).error();
      layer.settings.push_back(std::move(*setting));
      is_set = true;
    }
    if (is_set) continue;
    // Several rows may share a variable; the first that fits stands for it.
    if (inherited.count(row.variable) != 0) continue;
    if (!knob || (!row.takes_value() && row.flag_value != *knob)) continue;
    inherited.insert(row.variable);
    layer.settings.push_back(
        {&row, row.takes_value() ? *knob : "", "$" + std::string(row.variable), false, true});
  }
  return layer;
}

// A variable that names no option does nothing, as a misspelt option would without its error.
std::vector<std::string> misspelt_variables(const std::vector<std::string>& ours) {
  std::vector<std::string> out;
  if (ours.empty()) return out;
  std::vector<std::string> known;
  for (const OptionRow& row : option_table()) {
    if (!is_configurable(row)) continue;
    // The edit distance counts in what is not common to all.
    for (const std::string& name : variables_of(row)) known.push_back(name.substr(kOurs.size()));
  }
  for (const std::string& name : ours) {
    const std::string rest = name.substr(kOurs.size());
    if (std::find(known.begin(), known.end(), rest) != known.end()) continue;
    const auto close = did_you_mean(rest, known);
    out.push_back("$" + name + " names no option" +
                  (close.empty() ? "; it is ignored"
                                 : "; did you mean " + std::string(kOurs) + close.front() + "?"));
  }
  return out;
}

std::string user_file(const ProcessInputs& inputs) {
  const auto config = inputs.variable("XDG_CONFIG_HOME");
  if (config && !config->empty()) return *config + "/hora/config.yaml";
  const auto home = inputs.variable("HOME");
  return home && !home->empty() ? *home + "/.config/hora/config.yaml" : "";
}

Result<Layer> named_file_layer(const std::string& path, const ProcessInputs& inputs,
                               std::vector<std::string>& warnings) {
  auto text = inputs.read_file(path);
  if (!text) return usage("--config-file: " + text.error().message);
  auto settings = read_config_file(*text, path, warnings);
  if (!settings) return std::move(settings).error();
  return Layer{path, std::move(*settings)};
}

Status add_own_files(const ProcessInputs& inputs, std::vector<Layer>& layers,
                     std::vector<std::string>& files, std::vector<std::string>& warnings) {
  const std::string system(
      inputs.variable("HORA_SYSTEM_CONFIG").value_or(std::string(kSystemFile)));
  for (const std::string& path : {std::string(kProjectFile), user_file(inputs), system}) {
    if (path.empty()) continue;
    auto text = inputs.read_own_file(path);
    // A missing file is normal; the list of files shows the user where one could be.
    if (!text && text.error().code == ErrorCode::kNotFound) {
      files.push_back(path + " (not there)");
      continue;
    }
    if (!text) return usage(text.error().message);
    auto settings = read_config_file(*text, path, warnings);
    if (!settings) return std::move(settings).error();
    files.push_back(path + " (read)");
    layers.push_back({path, std::move(*settings)});
  }
  return Ok{};
}

// For one option, for options that exclude each other, and for options that set the same variable,
// the highest layer that has one of them decides.
std::vector<Setting> merge(const std::vector<Layer>& highest_first) {
  std::vector<Setting> out;
  std::set<const OptionRow*> rows;
  std::set<std::string_view> groups;
  std::set<std::string_view> variables;
  for (const Layer& layer : highest_first) {
    // First collect, then record: within one layer an option may be repeated, and contradictions
    // inside a layer are reported later, by the check of values.
    std::vector<const Setting*> taken;
    for (const Setting& setting : layer.settings) {
      const OptionRow& row = *setting.row;
      const bool decided = rows.count(&row) != 0 ||
                           (!row.excludes.empty() && groups.count(row.excludes) != 0) ||
                           (!row.variable.empty() && variables.count(row.variable) != 0);
      if (!decided) taken.push_back(&setting);
    }
    for (const Setting* setting : taken) {
      rows.insert(setting->row);
      if (!setting->row->excludes.empty()) groups.insert(setting->row->excludes);
      if (!setting->row->variable.empty()) variables.insert(setting->row->variable);
      out.push_back(*setting);
    }
  }
  return out;
}

// The text of an inherited variable: in the unit of the variable, not of the option.
std::string inherited_text(const Setting& setting) {
  const std::string_view value =
      setting.row->takes_value() ? setting.value : setting.row->flag_value;
  return std::string(setting.row->variable) + "=" + std::string(value);
}

bool was_typed(const Spelled& typed, std::string_view name) {
  return std::any_of(typed.options.begin(), typed.options.end(),
                     [name](const SpelledOption& o) { return long_name(*o.row) == name; });
}

}  // namespace

std::vector<std::string> variables_of(const OptionRow& row) {
  std::vector<std::string> out;
  for (const std::string_view name : names_of(row)) {
    if (name.starts_with("--")) out.push_back("HORARUN_" + constant_name(name.substr(2)));
  }
  return out;
}

namespace {

// No shell has done it in "--report=~/job.json", in a file and in a variable.
std::string expand_home(const OptionRow& row, std::string value, const ProcessInputs& inputs) {
  const bool is_path = row.metavar == "FILE" || row.metavar == "DIR" || row.metavar == "PATH";
  const std::string home = inputs.variable("HOME").value_or("");
  if (is_path && !home.empty() && value.starts_with("~/")) value.replace(0, 1, home);
  return value;
}

}  // namespace

Result<MergedOptions> settle_options(const Spelled& typed, Verb verb, const ProcessInputs& inputs) {
  MergedOptions settled;
  std::vector<Layer> layers{command_line_layer(typed)};
  for (const SpelledOption& option : typed.options) {
    if (long_name(*option.row) != "--config-file") continue;
    auto layer =
        named_file_layer(expand_home(*option.row, *option.value, inputs), inputs, settled.warnings);
    if (!layer) return std::move(layer).error();
    settled.files.push_back(layer->name + " (read)");
    // Of two files, the last one wins.
    layers.insert(layers.begin() + 1, std::move(*layer));
  }
  const std::vector<std::string> ours = our_variables(inputs);
  auto environment = environment_layer(inputs, ours);
  if (!environment) return std::move(environment).error();
  layers.push_back(std::move(*environment));
  // Whatever the verb: the environment is that of all of them.
  for (std::string& text : misspelt_variables(ours)) settled.warnings.push_back(std::move(text));
  // Some callers have no files of their own.
  if (inputs.read_own_file && !was_typed(typed, "--no-config")) {
    HORA_TRY(add_own_files(inputs, layers, settled.files, settled.warnings));
  }
  settled.spelled.command = typed.command;
  settled.spelled.after_dashes = typed.after_dashes;
  for (Setting& setting : merge(layers)) {
    // A file may set options for other verbs.
    if ((setting.row->verbs & verb) == 0) continue;
    // Passive settings reach the ranks without our help.
    if (!setting.off && !setting.passive) {
      std::optional<std::string> value;
      if (setting.row->takes_value()) value = expand_home(*setting.row, setting.value, inputs);
      settled.spelled.options.push_back({setting.row, setting.origin, std::move(value)});
    }
    settled.settings.push_back(std::move(setting));
  }
  // Shows settings in the order of the option table.
  std::stable_sort(settled.settings.begin(), settled.settings.end(),
                   [](const Setting& a, const Setting& b) { return a.row < b.row; });
  return settled;
}

std::string show_config_text(const MergedOptions& settled, const std::string& allocation) {
  std::string out;
  for (const Setting& setting : settled.settings) {
    std::string line(long_name(*setting.row));
    if (line == "--show-config") continue;
    if (setting.row->takes_value()) line += " " + setting.value;
    if (setting.off) line += " (off)";
    if (setting.passive) line = inherited_text(setting);
    line.resize(std::max<std::size_t>(line.size() + 2, 42), ' ');
    // Only the command line's origins begin with '-'.
    const bool typed = setting.origin.substr(0, 1) == "-";
    out += line + (typed ? "command line" : setting.origin) + "\n";
  }
  out += "Every other option has its default (horarun --help=all).\n";
  if (!allocation.empty()) out += "Hosts and slots: " + allocation + "\n";
  if (!settled.files.empty()) out += "Files, the first counts most:\n";
  for (const std::string& file : settled.files) out += "  " + file + "\n";
  if (!settled.warnings.empty()) out += "Warnings:\n";
  for (const std::string& warning : settled.warnings) out += "  " + warning + "\n";
  return out;
}

std::string show_config_json(const MergedOptions& settled, const std::string& allocation) {
  nlohmann::ordered_json document;
  document["schema"] = 1;
  document["settings"] = nlohmann::ordered_json::array();
  for (const Setting& setting : settled.settings) {
    if (long_name(*setting.row) == "--show-config") continue;
    nlohmann::ordered_json item;
    item["option"] = long_name(*setting.row);
    if (setting.passive) {
      item["variable"] = inherited_text(setting);
    } else if (setting.row->takes_value()) {
      item["value"] = setting.value;
    } else {
      item["value"] = !setting.off;
    }
    item["origin"] = setting.origin.substr(0, 1) == "-" ? "command line" : setting.origin;
    document["settings"].push_back(std::move(item));
  }
  if (!allocation.empty()) document["allocation"] = allocation;
  document["files"] = settled.files;
  if (!settled.warnings.empty()) document["warnings"] = settled.warnings;
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
