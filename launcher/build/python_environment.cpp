// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/python_environment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/failures/failure_code.h"
#include "launcher/libraries/elf_dynamic.h"
#include "launcher/libraries/library_search.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/paths.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// Where distributions, and images of containers, install the Python of the whole machine.
const std::set<std::string_view>& system_folders() {
  static const std::set<std::string_view> folders{"", "/usr", "/usr/local"};
  return folders;
}

bool is_program(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

bool lies_in(std::string_view path, const std::string& folder) {
  return path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

// Of a folder that cannot be read: none. What must be in it is missed by its name.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  while (const dirent* item = folder ? ::readdir(folder.get()) : nullptr) {
    names.emplace_back(item->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The lines "name = value" of pyvenv.cfg.
std::map<std::string, std::string> settings_of(std::string_view text) {
  std::map<std::string, std::string> settings;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    settings.emplace(trim(line.substr(0, equals)), trim(line.substr(equals + 1)));
  }
  return settings;
}

// "3.11" of "3.11.2" or "3.11.2.final.0".
std::string short_version(const std::string& version) {
  const auto numbers = split(version, '.');
  if (numbers.size() < 2 || !parse_int<int>(numbers[0]) || !parse_int<int>(numbers[1])) return "";
  return std::string(numbers[0]) + "." + std::string(numbers[1]);
}

// By its library, which stands in lib/python3.11.
std::string version_of_installation(const std::string& folder) {
  constexpr std::string_view kName = "python";
  for (const std::string& name : names_in(folder + "/lib")) {
    if (name.starts_with(kName) &&
        ::access((folder + "/lib/" + name + "/os.py").c_str(), F_OK) == 0) {
      return short_version(name.substr(kName.size()));
    }
  }
  return "";
}

// The Python that a virtual environment runs.
std::string program_in(const std::string& folder) {
  for (const char* name : {"/bin/python", "/bin/python3"}) {
    if (is_program(folder + name)) return os::real_path(folder + name);
  }
  return "";
}

// Empty for others and for what is no ELF file: hosts of any kind are tried then.
std::string machine_of(const std::string& program) {
  constexpr std::size_t kMachineAt = 18;  // e_machine in the header of an ELF file
  const os::Fd file(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, kMachineAt + 2> header{};
  if (::read(file.get(), header.data(), header.size()) != static_cast<ssize_t>(header.size()) ||
      std::string_view(header.data(), 4) !=
          "\x7f"
          "ELF") {
    return "";
  }
  switch (static_cast<unsigned char>(header[kMachineAt])) {
    case 62:
      return "x86_64";
    case 183:
      return "aarch64";
    default:
      return "";
  }
}

// Python's program finds libpython by its run path. If that is absolute, it leads nowhere on a
// host.
bool needs_library_path(const std::string& program) {
  const auto found = LibrarySearch({}).open(program);
  if (!found) return false;
  const auto& needed = found->elf.needed;
  return std::any_of(needed.begin(), needed.end(),
                     [](const std::string& name) { return name.starts_with("libpython"); }) &&
         found->elf.run_path.find("$ORIGIN") == std::string::npos &&
         found->elf.run_path.find("${ORIGIN}") == std::string::npos;
}

Error not_one(const std::string& path, const std::string& why) {
  return make_error(ErrorCode::kUsage, path + " is no Python environment that can travel: " + why);
}

// --- packages that lie elsewhere -----------------------------------------------------------------

// What pip wrote down of `pip install -e FOLDER`: the folder. Empty: it was installed otherwise.
std::string editable_folder(const std::string& info_folder) {
  const auto text = os::read_file(info_folder + "/direct_url.json");
  if (!text) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  constexpr std::string_view kFile = "file://";
  if (!json.is_object() || !json.contains("dir_info") || !json.contains("url") ||
      !json["url"].is_string() || !json["dir_info"].is_object() ||
      json["dir_info"].value("editable", nlohmann::json(false)) != nlohmann::json(true)) {
    return "";
  }
  const std::string url = json["url"];
  return url.starts_with(kFile) ? url.substr(kFile.size()) : url;
}

// A .pth file lists folders for the module path; lines that begin with "import" are code.
std::vector<std::string> folders_of_pth(const std::string& path) {
  std::vector<std::string> folders;
  const auto text = os::read_file(path);
  if (!text) return folders;
  for (const std::string_view each : split(*text, '\n')) {
    const std::string_view line = trim(each);
    if (line.starts_with("/")) folders.emplace_back(line);
  }
  return folders;
}

std::vector<std::string> find_outside(const std::string& packages, const std::string& folder) {
  std::vector<std::string> found;
  std::set<std::string> told;
  const auto tell = [&](const std::string& name, const std::string& where) {
    if (where.empty() || lies_in(where, folder) || lies_in(os::real_path(where), folder)) return;
    // An editable package has both, and the .pth file may name a folder in that of the package.
    for (const std::string& known : told) {
      if (lies_in(where, known)) return;
    }
    told.insert(where);
    found.push_back(name + " (" + where + ")");
  };
  const auto names = names_in(packages);
  for (const std::string& name : names) {
    if (!name.ends_with(".dist-info")) continue;
    tell(name.substr(0, name.find('-')), editable_folder(packages + "/" + name));
  }
  for (const std::string& name : names) {
    if (!name.ends_with(".pth") && !name.ends_with(".egg-link")) continue;
    for (const std::string& where : folders_of_pth(packages + "/" + name)) tell(name, where);
  }
  return found;
}

// --- the two kinds -------------------------------------------------------------------------------

Status examine_virtual(PythonEnvironment& environment, const std::string& text) {
  const auto settings = settings_of(text);
  const auto setting = [&settings](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string() : found->second;
  };
  environment.is_virtual = true;
  environment.uses_base_packages =
      equals_ignoring_case(setting("include-system-site-packages"), "true");
  // venv writes the first; virtualenv and uv the second.
  for (const char* name : {"version", "version_info"}) {
    if (environment.version.empty()) environment.version = short_version(setting(name));
  }
  if (environment.version.empty()) return not_one(environment.path, "pyvenv.cfg names no version");
  const std::string home = setting("home");
  // By its full name: bin/python may lead to python3, which is another version on a newer host.
  const std::string named = home + "/python" + environment.version;
  environment.program = is_program(named) ? named : program_in(environment.folder);
  if (environment.program.empty()) {
    return not_one(environment.path, "its Python, " + named + ", is not there");
  }
  // The program may be a link to where its installation is.
  const std::string real = os::real_path(environment.program);
  const std::string base = os::folder_of(os::folder_of(real));
  if (system_folders().count(base) > 0 || system_folders().count(os::folder_of(home)) > 0 ||
      !os::is_folder(base + "/lib/python" + environment.version)) {
    environment.uses_host_python = true;
  } else {
    environment.program = real;
    environment.base = base;
  }
  return Ok{};
}

Status examine_installation(PythonEnvironment& environment) {
  environment.program = program_in(environment.folder);
  if (environment.program.empty()) {
    return not_one(environment.path, "it has neither pyvenv.cfg nor bin/python");
  }
  if (system_folders().count(environment.folder) > 0) {
    return not_one(environment.path, "it is this machine's own; make one with python3 -m venv");
  }
  if (!lies_in(environment.program, environment.folder)) {
    return not_one(environment.path,
                   "its bin/python leads to " + environment.program + ", and it has no pyvenv.cfg");
  }
  environment.version = version_of_installation(environment.folder);
  if (environment.version.empty()) return not_one(environment.path, "it has no lib/python3.*");
  environment.is_conda = os::is_folder(environment.folder + "/conda-meta");
  return Ok{};
}

}  // namespace

Result<PythonEnvironment> examine_environment(const std::string& path) {
  PythonEnvironment environment;
  environment.path = path;
  environment.folder = os::real_path(path);
  if (!os::is_folder(environment.folder)) {
    return make_error(ErrorCode::kUsage, path + ": no such folder");
  }
  if (const auto text = os::read_file(environment.folder + "/pyvenv.cfg")) {
    HORA_TRY(examine_virtual(environment, *text));
  } else {
    HORA_TRY(examine_installation(environment));
  }
  // So that no host gets gigabytes that it cannot run.
  environment.machine = machine_of(environment.program);
  if (!environment.uses_host_python) {
    environment.needs_library_path = needs_library_path(environment.program);
  }
  environment.outside =
      find_outside(environment.folder + "/lib/python" + environment.version + "/site-packages",
                   environment.folder);
  return environment;
}

std::optional<Failure> why_unfit(const PythonEnvironment& environment, const Hello& host) {
  const std::string& built_for = environment.machine;
  if (built_for.empty() || built_for == host.machine) return std::nullopt;
  return Failure{
      std::string(failure::kShip),
      "its processor is " + host.machine + ", and " + environment.path + " of --ship-env is for " +
          built_for,
      "use hosts of one processor, or start a Python that they have, without --ship-env"};
}

std::string describe(const PythonEnvironment& environment) {
  std::string text = "Python " + environment.version;
  if (environment.uses_host_python) return text + ", hosts need " + environment.program;
  return text + ", its interpreter travels";
}

}  // namespace hora::launcher
