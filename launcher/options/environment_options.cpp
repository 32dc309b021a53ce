// SPDX-License-Identifier: Apache-2.0
// VAR=VALUE sets a variable; VAR alone passes on the value that it has here, which matters only for
// those that would stay on this machine, such as CUDA_VISIBLE_DEVICES. Files have the form that
// docker's --env-file has: no quotes, no expansion.
#include "launcher/options/environment_options.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "launcher/plan/worker_environment.h"
#include "launcher/text/spec_location.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// What is wrong with VAR or VAR=VALUE; empty: nothing.
std::string problem_with(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('='));
  if (name.empty()) return "expected VAR or VAR=VALUE";
  if (name.find_first_of(" \t") != std::string_view::npos) {
    return "expected VAR or VAR=VALUE, found a blank in the name " + quote(name);
  }
  const std::size_t star = name.find('*');
  if (star == 0 || (star != std::string_view::npos && star + 1 < text.size())) {
    return "expected a name, or the first letters of names and '*' such as NCCL_*, found " +
           quote(text);
  }
  // A value from outside would put the rank into another place, or another job.
  if (travel_of(name) == Travel::kNowhere) {
    return std::string(name) + " cannot be set: horarun sets it for each rank, or no rank has it";
  }
  return "";
}

class Reader {
 public:
  Reader(const ProcessInputs& inputs, JobSpec& job, std::vector<std::string>& warnings)
      : inputs_(inputs), job_(job), warnings_(warnings) {}

  Status read_option(const std::string& text) {
    const std::string problem = problem_with(text);
    if (!problem.empty()) return usage("-x: " + problem);
    add(text, "-x");
    return Ok{};
  }

  Status read_file(const std::string& path) {
    const auto text = inputs_.read_file(path);
    if (!text) return usage("--env-file: " + text.error().message);
    std::size_t number = 0;
    for (std::string_view line : split(*text, '\n')) {
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (trim(line).empty() || trim(line).front() == '#') continue;
      const std::string problem = problem_with(line);
      if (!problem.empty()) return spec_error({path, line, number}, 0, problem);
      add(line, path + ":" + std::to_string(number));
    }
    return Ok{};
  }

 private:
  static std::string_view name_of(std::string_view text) { return text.substr(0, text.find('=')); }

  void add(std::string_view text, const std::string& origin) {
    const std::string name(name_of(text));
    if (name.size() < text.size()) return set(name, std::string(text.substr(name.size() + 1)));
    bool found = false;
    for (const std::string& each : names_of(name)) {
      const auto value = inputs_.variable(each);
      if (!value) continue;
      found = true;
      set(each, *value);
    }
    if (found) return;
    const bool many = name.ends_with('*');
    warnings_.push_back(origin + ": " + (many ? "no variable " : "") + name + " is " +
                        (many ? "" : "not ") + "set here, so it is not passed on");
  }

  // "NCCL_*" is every variable whose name begins so, as with mpirun.
  std::vector<std::string> names_of(const std::string& name) const {
    if (!name.ends_with('*') || !inputs_.variable_names) return {name};
    const std::string_view begin = std::string_view(name).substr(0, name.size() - 1);
    std::vector<std::string> names;
    for (std::string& each : inputs_.variable_names()) {
      if (each.starts_with(begin) && travel_of(each) != Travel::kNowhere) {
        names.push_back(std::move(each));
      }
    }
    return names;
  }

  void set(const std::string& name, std::string value) {
    auto& list = job_.variables;
    const auto known = std::find_if(
        list.begin(), list.end(), [&name](const auto& variable) { return variable.name == name; });
    // Of a name that comes twice the last value counts, in the place of the first.
    if (known != list.end()) {
      known->value = std::move(value);
    } else {
      list.push_back({name, std::move(value)});
    }
  }

  const ProcessInputs& inputs_;
  JobSpec& job_;
  std::vector<std::string>& warnings_;
};

}  // namespace

// The order of the two loops is the precedence: what is typed wins over what is in a file, and of
// several files or options the last one wins, as with docker.
Status read_environment_options(const OptionValues& values, const ProcessInputs& inputs,
                                JobSpec& job, std::vector<std::string>& warnings) {
  Reader reader(inputs, job, warnings);
  for (const std::string& path : values.all("--env-file")) HORA_TRY(reader.read_file(path));
  for (const std::string& text : values.all("-x")) HORA_TRY(reader.read_option(text));
  return Ok{};
}

}  // namespace hora::launcher
