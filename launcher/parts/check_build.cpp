// SPDX-License-Identifier: Apache-2.0
// Reports what works here, not what was built: everything is loaded for a test, in child processes,
// since a broken library may crash.
#include "launcher/parts/check_build.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "hora/features.h"
#include "launcher/machine/library_search.h"
#include "launcher/options/command_line.h"
#include "launcher/options/option_table.h"
#include "launcher/parts/bundle.h"
#include "launcher/parts/hashes.h"
#include "launcher/parts/vendor_parts.h"
#include "launcher/parts/vendor_search.h"
#include "rendezvous/base/text.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::launcher {

namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

constexpr std::chrono::seconds kLoadLimit{30};

// The Python that ranks would use says what it can import. Nothing is imported for that: it takes
// a framework several seconds.
std::set<std::string> importable_frameworks() {
  static constexpr const char* kQuestion =
      "import importlib.util\n"
      "print(*filter(importlib.util.find_spec, ('tensorflow', 'torch', 'mxnet')))";
  const auto answer = run_isolated_program({"python3", "-c", kQuestion}, kLoadLimit);
  std::set<std::string> out;
  if (!answer) return out;  // there is no Python
  for (const std::string_view name : split(*answer, ' ')) out.emplace(name);
  return out;
}

// Returns the packages under the names that scripts import. They need ours, and the framework.
std::vector<std::string> find_frameworks(const std::string& bundle) {
  std::vector<std::string> out;
  if (!is_file(bundle + "/python/hora/__init__.py")) return out;
  const std::string folder = bundle + "/python/horovod/";
  for (const std::string& package : importable_frameworks()) {
    if (is_file(folder + package + "/__init__.py")) out.push_back(package);
  }
  return out;
}

using nlohmann::json;

// Asks libhora one question in a child process, which answers in JSON: a library that is loaded may
// crash.
class Runtime {
 public:
  explicit Runtime(std::string path) : path_(std::move(path)) {}

  // Returns {"error": ...}, or what hora_describe() says with "loads" added to each backend.
  json describe() const {
    return ask([](void* library) {
      const auto describe = reinterpret_cast<const char* (*)()>(dlsym(library, "hora_describe"));
      if (describe == nullptr) return failed("it is not a libhora of this version");
      json out = json::parse(describe(), nullptr, /*allow_exceptions=*/false);
      if (!out.is_object() || !out.contains("backends"))
        return failed("it does not answer with JSON");
      for (json& row : out["backends"]) row["loads"] = loads(library, row.value("id", ""));
      return out;
    });
  }

  // Returns {"loads": true} or {"error": ...}.
  json load_backend(const std::string& id) const {
    return ask([&id](void* library) {
      return id.empty() || loads(library, id) ? json{{"loads", true}} : failed("it does not load");
    });
  }

 private:
  static json failed(const std::string& why) { return {{"error", why}}; }

  static bool loads(void* library, const std::string& id) {
    const auto built = reinterpret_cast<int (*)(const char*)>(dlsym(library, "hora_backend_built"));
    return built != nullptr && built(id.c_str()) == 1;
  }

  json ask(const std::function<json(void* library)>& question) const {
    const auto answer = run_isolated(
        [&] {
          // RTLD_NOW finds missing symbols at once.
          void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
          const json out = library == nullptr ? failed(dlerror()) : question(library);
          return out.dump(-1, ' ', false, json::error_handler_t::replace);
        },
        kLoadLimit);
    return answer ? json::parse(*answer, nullptr, false) : failed(answer.error().message);
  }

  std::string path_;
};

void ask_runtime(BuildFacts& facts) {
  const Runtime runtime(facts.runtime_path);
  const json description = runtime.describe();
  if (!description.contains("error")) {
    for (const json& row : description["backends"]) {
      BackendFact fact = {row.value("loads", false), row.value("usable", false),
                          row.value("version", ""), row.value("why_not", "")};
      const std::string id = row.value("id", "");
      // This backend looks for its library by itself, so loading the backend proves little.
      if (id == "nccl" && fact.loads && fact.version.empty()) {
        fact.loads = false;
        fact.why_not = "no libnccl.so.2 was found";
      }
      facts.backends[id] = std::move(fact);
    }
    return;
  }
  // Something is broken: either the library itself, or one of the backends that it loads for the
  // answer. Loading each one alone shows which.
  const json alone = runtime.load_backend("");
  if (alone.contains("error")) {
    facts.runtime_error = alone.value("error", "");
    return;
  }
  for (const std::string id : {"self", "shm", "tcp", "gloo", "mpi", "ccl", "nccl"}) {
    const json answer = runtime.load_backend(id);
    facts.backends[id] = {!answer.contains("error"), false, "", answer.value("error", "")};
  }
}

// Returns libhora's backend for a feature; empty if the feature is not a backend.
std::string backend_of(const std::string& feature) {
  if (feature == "GLOO") return "gloo";
  if (feature == "MPI") return "mpi";
  if (feature == "NCCL" || feature == "CUDA") return "nccl";
  if (feature == "SHM") return "shm";
  return "";
}

// A static library leaves no file to look for.
bool is_static(const BuiltFeature& row) {
  return std::string_view(row.location).find(".so") == std::string_view::npos;
}

// horarun needs libssh through a module of its own, unless it is linked in.
FeatureFact ssh_fact(const BuiltFeature& row, const std::string& bundle, FeatureFact fact) {
  fact.built = HORA_WITH_SSH != 0;
  if (!fact.built) return fact;
  const std::string module = bundle + "/../launcher/libhora_ssh.so";
  const auto answer = run_isolated(
      [&module]() -> std::string {
        return dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr ? dlerror() : "";
      },
      kLoadLimit);
  const std::string problem = answer ? *answer : answer.error().message;
  fact.loads = problem.empty();
  if (!fact.loads) {
    fact.note = problem;
  } else if (is_static(row)) {
    fact.version_found = row.version;
    fact.path = "linked into libhora_ssh.so";
    fact.note.clear();
  }
  return fact;
}

VendorLibrary probe_vendor_library(const BuiltFeature& row, const std::string& bundle) {
  // hora-pmix does not know the directories of the build machine.
  const std::string location = std::string(row.name) == "PMIX" ? "" : row.location;
  const auto answer = run_isolated(
      [&] {
        const VendorLibrary found =
            find_vendor_library(row.name, {bundle + "/lib/deps", bundle + "/lib"}, location);
        return json{found.path, found.version, found.error}.dump(-1, ' ', false,
                                                                 json::error_handler_t::replace);
      },
      kLoadLimit);
  if (!answer) return {"", "", answer.error().message};
  const json fields = json::parse(*answer, nullptr, false);
  return {fields[0], fields[1], fields[2]};
}

FeatureFact tls_fact(const BuiltFeature& row, const std::string& bundle, FeatureFact fact) {
  fact.built = row.found && is_file(bundle + "/lib/libhora_tls.so");
  if (!fact.built) return fact;
  const auto answer = run_isolated(
      [] {
        const auto loaded = tls::load();
        const json out =
            loaded ? json{loaded->path, loaded->version, ""} : json{"", "", loaded.error().message};
        return out.dump(-1, ' ', false, json::error_handler_t::replace);
      },
      kLoadLimit);
  const json fields =
      answer ? json::parse(*answer, nullptr, false) : json{"", "", answer.error().message};
  fact.path = fields[0];
  fact.version_found = fields[1];
  fact.note = fields[2];
  fact.loads = !fact.path.empty();
  return fact;
}

FeatureFact feature_fact(const BuiltFeature& row, const std::string& bundle,
                         const BuildFacts& facts) {
  FeatureFact fact;
  fact.name = row.name;
  fact.version_built = row.version;
  const VendorLibrary library = fact.name == "GLOO" && row.found && is_static(row)
                                    ? VendorLibrary{"linked into libhora_gloo.so", row.version, ""}
                                    : probe_vendor_library(row, bundle);
  fact.version_found = library.version;
  fact.path = library.path;
  fact.note = library.error;
  if (fact.name == "SSH") fact = ssh_fact(row, bundle, fact);
  if (fact.name == "TLS") fact = tls_fact(row, bundle, fact);
  if (fact.name == "PMIX") {
    fact.built = row.found && is_file(bundle + "/bin/hora-pmix");
    fact.loads = fact.built && !fact.path.empty();
  }

  const auto backend = facts.backends.find(backend_of(fact.name));
  if (backend != facts.backends.end()) {
    fact.built = row.found;
    fact.loads = facts.loads(backend->first);
    if (!fact.loads) fact.note = backend->second.why_not;
    // The backend uses this library among others, or looks for it by itself.
    if ((fact.name == "CUDA" || fact.name == "NCCL") && fact.path.empty()) fact.loads = false;
    // The library was loaded with the backend and is used from there.
    if (fact.loads && fact.path.empty()) fact.note.clear();
  }
  if (!fact.built && !row.found) {
    fact.note = row.why_not;
  } else if (!fact.built) {
    fact.note = facts.runtime_error.empty() || backend_of(fact.name).empty()
                    ? "found when Hora was built; no part of this version uses it"
                    : "unknown, because the runtime does not load";
  }
  return fact;
}

// As a job would find it, so that what is printed here is what is sent. The MPI that this machine
// uses itself is among the features.
VendorFact open_mpi_fact() {
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  KnownHashes hashes(launcher_memory_folder(split_environment(environ)));
  const auto part = collect_open_mpi(absolute_folders(folders == nullptr ? "" : folders), hashes);
  if (!part) return {"Open MPI", "", 0, "", part.error().message};
  return {part->name, part->origin, static_cast<std::int64_t>(unpacked_bytes(*part)),
          part->least_glibc, ""};
}

VendorFact nccl_fact() {
  const auto found = find_nccl(nccl_folders({}, split_environment(environ)));
  if (!found) return {"NCCL", "", 0, "", found.error().message};
  return {"NCCL", found->path, static_cast<std::int64_t>(found->size_bytes), found->least_glibc,
          ""};
}

BuildFacts facts_of_this_installation() {
  const auto installation = find_installation();
  if (!installation) return collect_build_facts("", installation.error().message);
  BuildFacts facts = collect_build_facts(installation->own().bundle_directory, "");
  for (const Build& build : installation->builds) {
    facts.machines.push_back({build.machine, build.least_glibc, build.fault});
  }
  // Without the server of --pmix, no job would send it.
  if (is_file(installation->own().bundle_directory + "/bin/hora-pmix")) {
    facts.vendors.push_back(open_mpi_fact());
  }
  if (is_file(installation->own().bundle_directory + "/lib/libhora_nccl.so")) {
    facts.vendors.push_back(nccl_fact());
  }
  return facts;
}

}  // namespace

BuildFacts collect_build_facts(const std::string& bundle_directory,
                               const std::string& installation_error) {
  BuildFacts facts;
  facts.version = HORA_VERSION;
  facts.title = "Hora v" + facts.version;
  facts.runtime_error = installation_error;
  if (installation_error.empty()) {
    facts.runtime_path = bundle_directory + "/lib/libhora.so";
    facts.frameworks = find_frameworks(bundle_directory);
    ask_runtime(facts);
  }
  facts.mpi_engine = find_option("--mpi", kVerbLaunch) != nullptr;
  for (const BuiltFeature& row : kBuiltFeatures) {
    facts.features.push_back(feature_fact(row, bundle_directory, facts));
  }
  return facts;
}

std::string check_build_text(bool verbose, bool as_horovodrun) {
  BuildFacts facts = facts_of_this_installation();
  if (as_horovodrun) facts.title = "Horovod v" + std::string(kHorovodVersion);
  return format_build_facts(facts, verbose);
}

std::string check_build_json() { return format_build_facts_json(facts_of_this_installation()); }

}  // namespace hora::launcher
