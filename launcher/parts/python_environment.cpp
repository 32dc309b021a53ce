// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/python_environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/failures/failure_code.h"
#include "launcher/machine/elf_dynamic.h"
#include "launcher/machine/library_search.h"
#include "launcher/parts/hashes.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

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

// From its library, which is in lib/python3.11.
std::string version_of_installation(const std::string& folder) {
  constexpr std::string_view kName = "python";
  for (const std::string& name : os::names_in(folder + "/lib")) {
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
  std::set<std::string> folders_found;
  const auto add_folder = [&](const std::string& name, const std::string& where) {
    if (where.empty() || lies_in(where, folder) || lies_in(os::real_path(where), folder)) return;
    // An editable package has both, and the .pth file may name a folder in that of the package.
    for (const std::string& known : folders_found) {
      if (lies_in(where, known)) return;
    }
    folders_found.insert(where);
    found.push_back(name + " (" + where + ")");
  };
  const auto names = os::names_in(packages);
  for (const std::string& name : names) {
    if (!name.ends_with(".dist-info")) continue;
    add_folder(name.substr(0, name.find('-')), editable_folder(packages + "/" + name));
  }
  for (const std::string& name : names) {
    if (!name.ends_with(".pth") && !name.ends_with(".egg-link")) continue;
    for (const std::string& where : folders_of_pth(packages + "/" + name)) add_folder(name, where);
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

namespace {

constexpr std::string_view kCompiledFolder = "/__pycache__/";
constexpr std::string_view kSettings = "pyvenv.cfg";

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// --- which files ---------------------------------------------------------------------------------

// "python", "python3", "python3.11": what programs of the environment call their Python.
std::set<std::string> python_names(const PythonEnvironment& environment) {
  return {"python", "python3", "python" + environment.version};
}

TreeRoot root_of_folder(const PythonEnvironment& environment) {
  TreeRoot root{environment.folder, "", {}, /*keeps_compiled=*/true};
  std::set<std::string> skipped;
  if (environment.is_virtual) {
    // Links to a Python elsewhere.
    for (const std::string& name : python_names(environment)) skipped.insert("bin/" + name);
    if (!environment.base.empty()) skipped.insert(std::string(kSettings));
    // For shells, with the path here in them.
    for (const char* name :
         {"activate", "activate.csh", "activate.fish", "activate.nu", "activate.bat",
          "activate_this.py", "Activate.ps1", "activate.ps1", "deactivate.bat", "pydoc.bat"}) {
      skipped.insert(std::string("bin/") + name);
    }
  }
  // What conda keeps for making further environments.
  if (environment.is_conda) skipped.insert({"pkgs", "envs"});
  root.skips = [skipped = std::move(skipped)](const std::string& inside) {
    return skipped.count(inside) > 0;
  };
  return root;
}

// The Python that is sent along: its program, its library and its headers, for extensions that are
// compiled at run time. The environment does not use its other packages either.
TreeRoot root_of_base(const PythonEnvironment& environment) {
  const std::string library = "lib/python" + environment.version;
  std::set<std::string> skipped{library + "/test"};
  if (!environment.uses_base_packages) skipped.insert(library + "/site-packages");
  TreeRoot root{environment.base, "", {}, /*keeps_compiled=*/true};
  root.skips = [skipped = std::move(skipped), library,
                program = "bin/" + name_of(environment.program)](const std::string& inside) {
    const std::string top = inside.substr(0, inside.find('/'));
    if (top == "bin") return inside != "bin" && inside != program;
    if (top != "lib" && top != "include") return true;
    // For linking Python into programs.
    const bool is_archive = inside.ends_with(".a") && inside.starts_with(library + "/config-");
    return is_archive || skipped.count(inside) > 0;
  };
  return root;
}

// Both have bin/ and lib/; a file of the environment hides one of its Python's.
void drop_hidden(TreeListing& listing) {
  std::set<std::string> seen;
  const auto is_hidden = [&](const PartFile& each) {
    const bool hidden = !seen.insert(each.file.path).second;
    if (hidden) listing.bytes -= each.file.size_bytes;
    return hidden;
  };
  auto& files = listing.files;
  files.erase(std::remove_if(files.begin(), files.end(), is_hidden), files.end());
}

void add_names_of_python(const PythonEnvironment& environment, std::vector<PartFile>& files) {
  const std::string program = name_of(environment.program);
  for (const std::string& name : python_names(environment)) {
    if (name == program) continue;
    PartFile& link = files.emplace_back();
    link.file.path = "bin/" + name;
    link.file.mode = 0777;
    link.file.link_target = program;
  }
}

// --- what is in them -----------------------------------------------------------------------------

// The beginning of a file; empty if it cannot be read, which hashing it reports.
std::string head_of(const std::string& path, std::size_t size) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string head(size, '\0');
  const ssize_t got = file.valid() ? ::read(file.get(), head.data(), head.size()) : -1;
  head.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return head;
}

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (int i = 3; i >= 0; --i) {
    number = number << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return number;
}

// a/__pycache__/b.cpython-311.pyc is made of a/b.py.
std::string source_of_compiled(const std::string& path) {
  const std::size_t folder = path.rfind(kCompiledFolder);
  const std::string name = path.substr(folder + kCompiledFolder.size());
  return path.substr(0, folder) + "/" + name.substr(0, name.find('.')) + ".py";
}

// A compiled module names the time and size of its source, which are others on hosts. Where they
// are right here, hosts get one that Python takes as it is (PEP 552: hash-based, unchecked). False:
// Python would not use it; it does not travel.
bool settle_compiled(PartFile& file) {
  constexpr std::size_t kHeader = 16;  // magic number, flags, then time and size, or a hash
  constexpr std::uint32_t kHashBased = 1;
  if (!file.source.ends_with(".pyc")) return false;
  std::string head = head_of(file.source, kHeader);
  if (head.size() < kHeader) return false;
  const std::uint32_t flags = number_at(head, 4);
  if (flags & kHashBased) return true;
  struct stat source {};
  if (flags != 0 || ::stat(source_of_compiled(file.source).c_str(), &source) != 0 ||
      number_at(head, 8) != static_cast<std::uint32_t>(source.st_mtim.tv_sec) ||
      number_at(head, 12) != static_cast<std::uint32_t>(source.st_size)) {
    return false;
  }
  // The hash is that of no source. Python does not compare, and reads no source.
  head.replace(4, kHeader - 4, kHeader - 4, '\0');
  head[4] = static_cast<char>(kHashBased);
  file.head = std::move(head);
  file.replaced = kHeader;
  return true;
}

// What made the environment notes there how, with its path. Python reads three of the lines.
void settle_settings(PartFile& file) {
  constexpr std::size_t kLongest = 1u << 16;
  const std::string text = head_of(file.source, kLongest);
  for (const std::string_view line : split(text, '\n')) {
    const std::string_view name = trim(line.substr(0, line.find('=')));
    if (name == "home" || name == "include-system-site-packages" || name.starts_with("version")) {
      file.head += std::string(trim(line)) + "\n";
    }
  }
  file.replaced = text.size();
}

// The words of a script's first line that start this environment's Python: its name, then what
// else stands there. Nothing: it starts something else.
std::optional<std::string> python_of(std::string_view words, const std::string& bin) {
  words = trim(words);
  if (words.starts_with('"')) {
    // Launchers of pip quote a path with blanks.
    const std::size_t end = words.find('"', 1);
    if (end == std::string_view::npos) return std::nullopt;
    return python_of(std::string(words.substr(1, end - 1)), bin);
  }
  const std::string path(words.substr(0, words.find_first_of(" \t")));
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string name = path.substr(slash + 1);
  if (!name.starts_with("python")) return std::nullopt;
  if (os::real_path(path.substr(0, slash)) != bin) return std::nullopt;
  return name + std::string(words.substr(path.size()));
}

// Scripts name their Python by its absolute path. Hosts get one that starts the Python next to it,
// as `uv venv --relocatable` writes it: a shell reads the second line, Python reads a string.
void settle_script(PartFile& file, const std::string& bin) {
  constexpr std::size_t kLongest = 4096;
  const std::string text = head_of(file.source, kLongest);
  const std::size_t first = text.find('\n');
  if (!text.starts_with("#!") || first == std::string::npos) return;
  std::string_view line = std::string_view(text).substr(2, first - 2);
  std::size_t end = first + 1;
  auto python = python_of(line, bin);
  if (!python && trim(line) == "/bin/sh") {
    // For a path that is too long, or has blanks: '''exec' /path/python "$0" "$@", then ' '''.
    constexpr std::string_view kExec = "'''exec' ";
    constexpr std::string_view kArguments = " \"$0\" \"$@\"";
    const std::size_t second = text.find('\n', end);
    const std::size_t third = second == std::string::npos ? second : text.find('\n', second + 1);
    if (third == std::string::npos) return;
    line = std::string_view(text).substr(end, second - end);
    if (!line.starts_with(kExec) || !line.ends_with(kArguments)) return;
    line.remove_prefix(kExec.size());
    line.remove_suffix(kArguments.size());
    python = python_of(line, bin);
    end = third + 1;
  }
  if (!python) return;
  file.head = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/" + *python +
              " \"$0\" \"$@\"\n' '''\n";
  file.replaced = end;
}

Result<TreeListing> list_environment(const PythonEnvironment& environment) {
  // The environment's files first: they hide those of its Python.
  std::vector<TreeRoot> roots{root_of_folder(environment)};
  if (!environment.base.empty()) roots.push_back(root_of_base(environment));
  // Of any size: with CUDA, gigabytes are usual, and an environment is never packed by mistake.
  auto listing = list_tree(roots, std::numeric_limits<std::uint64_t>::max());
  if (!listing) return std::move(listing).error();
  drop_hidden(*listing);
  if (!environment.base.empty()) add_names_of_python(environment, listing->files);
  return listing;
}

}  // namespace

Result<std::string> what_travels(const PythonEnvironment& environment) {
  const auto listing = list_environment(environment);
  if (!listing) return listing.error();
  std::string text = environment.path + ": " + describe(environment) + "; " +
                     std::to_string(listing->files.size()) + " files, " +
                     format_size(listing->bytes);
  if (!environment.outside.empty()) text += "; not in it: " + few_names(environment.outside);
  return text;
}

Result<UserTree> read_environment_tree(const PythonEnvironment& environment, TreeMemory& memory) {
  auto listing = list_environment(environment);
  if (!listing) return std::move(listing).error();
  std::vector<PartFile> files;
  for (PartFile& each : listing->files) {
    const std::string& path = each.file.path;
    const bool is_file = each.file.link_target.empty() && (each.file.mode & S_IFMT) == 0;
    if (is_file && path.find(kCompiledFolder) != std::string::npos && !settle_compiled(each)) {
      continue;
    }
    // Settled before it is hashed, so that the same package has the same hash wherever it was
    // installed.
    if (path == kSettings) settle_settings(each);
    constexpr std::string_view kPrograms = "bin/";
    if (is_file && path.starts_with(kPrograms)) settle_script(each, environment.folder + "/bin");
    // All jobs of the user share what a host keeps.
    if (is_file) each.file.mode &= 0555;
    files.push_back(std::move(each));
  }
  listing->files = std::move(files);
  auto tree = make_user_tree(std::move(*listing), memory);
  if (!tree) return std::move(tree).error();
  // A folder of --ship may have a part that is the same; hosts keep the two apart.
  for (TreePart& part : tree->parts) part.hash = sha256_hex("environment " + part.hash);
  return tree;
}

std::vector<std::pair<std::string, std::string>> environment_paths(
    const PythonEnvironment& environment) {
  std::vector<std::pair<std::string, std::string>> paths{{"PATH", "@environment@/bin"}};
  paths.emplace_back(environment.is_conda ? "CONDA_PREFIX" : "VIRTUAL_ENV", "@environment@");
  // In a virtual environment, packages below ~/.local do not count.
  if (!environment.uses_host_python) paths.emplace_back("PYTHONNOUSERSITE", "1");
  if (environment.needs_library_path) paths.emplace_back("LD_LIBRARY_PATH", "@environment@/lib");
  return paths;
}

// `.venv/bin/python train.py` is what people write. Hosts have it elsewhere, first in their PATH.
std::string program_there(const PythonEnvironment& environment, const std::string& program) {
  const std::size_t slash = program.rfind('/');
  if (slash == std::string::npos) return program;
  const bool is_its = os::real_path(program.substr(0, slash)) == environment.folder + "/bin";
  return is_its ? program.substr(slash + 1) : program;
}

}  // namespace hora::launcher
