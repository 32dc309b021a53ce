// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/build_facts.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "launcher/parts/check_build.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::string path() const { return path_; }

 private:
  test::TemporaryDirectory root_;
  const fs::path path_ = root_.path();
};

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { ::unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

BuildFacts complete_facts() {
  BuildFacts facts;
  facts.version = "0.1.0";
  facts.title = "Hora v0.1.0";
  facts.runtime_path = "/opt/hora/libhora.so";
  facts.frameworks = {"torch", "tensorflow"};
  facts.backends["gloo"] = {true, true, "0.5.0", ""};
  facts.backends["nccl"] = {false, false, "", "libnccl.so.2 is not here"};
  FeatureFact gloo;
  gloo.name = "GLOO";
  gloo.built = gloo.loads = true;
  gloo.version_built = "0.5.0";
  gloo.path = "/opt/hora/deps/libgloo.so.0";
  facts.features = {gloo};
  return facts;
}

TEST_CASE("The tables have the layout that scripts parse") {
  CHECK(format_build_facts(complete_facts(), false) ==
        "Hora v0.1.0:\n"
        "\n"
        "Available Frameworks:\n"
        "    [X] TensorFlow\n"
        "    [X] PyTorch\n"
        "    [ ] MXNet\n"
        "\n"
        "Available Controllers:\n"
        "    [ ] MPI\n"
        "    [X] Gloo\n"
        "\n"
        "Available Tensor Operations:\n"
        "    [ ] NCCL\n"
        "    [ ] DDL\n"
        "    [ ] CCL\n"
        "    [ ] MPI\n"
        "    [X] Gloo    \n");
}

TEST_CASE("Verbose: a blank line before, the features behind") {
  const BuildFacts facts = complete_facts();
  const std::string text = format_build_facts(facts, true);
  CHECK(text.substr(0, 13) == "\nHora v0.1.0:");
  CHECK(text.find(format_build_facts(facts, false)) == 1);
  CHECK(text.find("GLOO   yes    yes    0.5.0          -                   "
                  "/opt/hora/deps/libgloo.so.0\n") != std::string::npos);
  CHECK(
      text.find(
          "nccl   does not load  -                   not usable here: libnccl.so.2 is not here") !=
      std::string::npos);
}

TEST_CASE("Verbose and JSON name the processors of hosts") {
  BuildFacts facts = complete_facts();
  facts.machines = {
      {"x86_64", "2.28", ""}, {"aarch64", "", ""}, {"vax", "", "it is of Hora 0.0.1"}};
  CHECK(format_build_facts(facts, true)
            .find("Processors of hosts:\n"
                  "    x86_64   hosts need glibc 2.28 or newer\n"
                  "    aarch64  no runtime\n"
                  "    vax      cannot be used: it is of Hora 0.0.1\n") != std::string::npos);
  const auto json = nlohmann::json::parse(format_build_facts_json(facts));
  CHECK(json["machines"][0] ==
        nlohmann::json{{"name", "x86_64"}, {"least_glibc", "2.28"}, {"fault", ""}});
  CHECK(json["machines"][2]["fault"] == "it is of Hora 0.0.1");
  CHECK(json["runtime"]["least_glibc"] == "2.28");
}

TEST_CASE("A runtime that does not load ticks no box") {
  BuildFacts facts = complete_facts();
  facts.runtime_error = "libc.so.6: version GLIBC_9.99 not found";
  CHECK(format_build_facts(facts, false).find("[X]") == std::string::npos);
  CHECK(format_build_facts(facts, true).find("GLIBC_9.99") != std::string::npos);
  CHECK(format_build_facts_json(facts).find("\"Gloo\": true") == std::string::npos);
}

TEST_CASE("An MPI library alone is no MPI controller") {
  BuildFacts facts = complete_facts();
  facts.backends["mpi"] = {true, true, "4.1.4", ""};
  facts.backends["ccl"] = {true, false, "2022.2.0", ""};
  const std::string text = format_build_facts(facts, false);
  CHECK(text.find("Controllers:\n    [ ] MPI") != std::string::npos);
  CHECK(text.find("[X] CCL\n    [X] MPI") != std::string::npos);
  facts.mpi_engine = true;
  CHECK(format_build_facts(facts, false).find("Controllers:\n    [X] MPI") != std::string::npos);
}

TEST_CASE("The facts of an empty, a broken and no installation") {
  CHECK(collect_build_facts("", "not installed").runtime_error == "not installed");
  const TemporaryFolder folder;
  const BuildFacts empty = collect_build_facts(folder.path(), "");
  CHECK(empty.runtime_error.find("No such file") != std::string::npos);
  CHECK(empty.frameworks.empty());
  folder.write("lib/libhora.so", "this is not a library");
  folder.write("python/hora/__init__.py", "");
  folder.write("python/horovod/torch/__init__.py", "");
  folder.write("python/horovod/mxnet/__init__.py", "");
  // A framework that the Python in PATH finds, and one that it does not.
  folder.write("importable/torch/__init__.py", "raise RuntimeError('it is not imported for that')");
  const ScopedVariable path("PYTHONPATH", folder.path() + "/importable");
  const BuildFacts broken = collect_build_facts(folder.path(), "");
  CHECK_FALSE(broken.runtime_error.empty());
  CHECK(broken.frameworks == std::vector<std::string>{"torch"});
  CHECK(format_build_facts(broken, false).find("[X]") == std::string::npos);
  for (const FeatureFact& fact : broken.features) {
    INFO(fact.name);
    if (fact.name != "SSH") CHECK_FALSE(fact.built);
  }
}

}  // namespace
}  // namespace hora::launcher
