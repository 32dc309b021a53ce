// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/environment_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "launcher/build/sha256.h"
#include "launcher/text/few_names.h"
#include "launcher/text/size.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/paths.h"

namespace hora::launcher {

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

// Of the Python that is sent along: its program, its library and its headers, for extensions that
// are compiled at run time. Its own packages were not seen in the environment, either.
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

// Scripts name their Python by its absolute path. Hosts get one that starts the Python beside it,
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
  // Of any size: with CUDA, gigabytes are usual, and nobody packs an environment by mistake.
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
