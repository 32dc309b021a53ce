// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/python_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::launcher;

namespace fs = std::filesystem;

namespace {

// A folder with environments, alone in a temporary one.
struct Folder {
  hora::test::TemporaryDirectory root;
  const std::string path = root.path();

  void write(const std::string& name, const std::string& text, int mode = 0644) const {
    const std::string whole = path + "/" + name;
    fs::create_directories(fs::path(whole).parent_path());
    std::ofstream(whole) << text;
    REQUIRE(::chmod(whole.c_str(), static_cast<mode_t>(mode)) == 0);
  }
  void link(const std::string& name, const std::string& target) const {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    fs::create_symlink(target, path + "/" + name);
  }
  // A Python of its own.
  void make_installation(const std::string& name) const {
    write(name + "/bin/python3.11", "the program", 0755);
    link(name + "/bin/python3", "python3.11");
    link(name + "/bin/python", "python3.11");
    write(name + "/lib/python3.11/os.py", "library");
    write(name + "/lib/python3.11/test/test_os.py", "tests");
    write(name + "/lib/python3.11/config-3.11/libpython3.11.a", "archive");
    write(name + "/lib/python3.11/site-packages/pip/__init__.py", "pip of the base");
    write(name + "/include/python3.11/Python.h", "header");
    write(name + "/share/man/python.1", "manual");
  }
  void make_virtual(const std::string& name, const std::string& home) const {
    write(name + "/pyvenv.cfg", "home = " + home + "\nversion = 3.11.2\n");
    link(name + "/bin/python3", home + "/python3.11");
    link(name + "/bin/python", "python3");
    link(name + "/lib64", "lib");
    write(name + "/lib/python3.11/site-packages/mine/__init__.py", "mine");
  }
};

std::map<std::string, PartFile> files_of(const UserTree& tree) {
  std::map<std::string, PartFile> files;
  for (const TreePart& part : tree.parts) {
    for (const PartFile& each : part.files) files[each.file.path] = each;
  }
  return files;
}

UserTree read(const std::string& path) {
  TreeMemory none("", "");
  return read_environment_tree(examine_environment(path).value(), none).value();
}

std::map<std::string, PartFile> files_of(const std::string& path) { return files_of(read(path)); }

std::string hashes_of(const std::string& path) {
  std::string text;
  for (const TreePart& part : read(path).parts) text += part.hash + "\n";
  return text;
}

std::string fault_of(const std::string& path) {
  const auto environment = examine_environment(path);
  REQUIRE(!environment);
  return environment.error().message;
}

std::string number(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

}  // namespace

TEST_CASE("a virtual environment of the system's Python leaves that where it is") {
  if (::access("/usr/bin/python3.11", X_OK) != 0) return;
  Folder folder;
  folder.make_virtual("venv", "/usr/bin");
  const auto environment = examine_environment(folder.path + "/venv").value();
  CHECK(environment.uses_host_python);
  CHECK(environment.program == "/usr/bin/python3.11");
  CHECK(environment.version == "3.11");
  CHECK(describe(environment) == "Python 3.11, hosts need /usr/bin/python3.11");
  folder.write("venv/bin/activate", "VIRTUAL_ENV=" + folder.path);
  folder.write("venv/pyvenv.cfg",
               "home = /usr/bin\nversion = 3.11.2\ncommand = venv " + folder.path);
  const auto files = files_of(folder.path + "/venv");
  CHECK(files.size() == 4);
  // Empty: the host puts links to its own Python there.
  CHECK((files.at("bin").file.mode & S_IFDIR) != 0);
  CHECK(files.at("pyvenv.cfg").head == "home = /usr/bin\nversion = 3.11.2\n");
  CHECK(files.at("lib64").file.link_target == "lib");
  CHECK(files.at("lib/python3.11/site-packages/mine/__init__.py").file.mode == 0444);
}

TEST_CASE("any other Python is sent along, and both become one") {
  Folder folder;
  folder.make_installation("base");
  folder.make_virtual("venv", folder.path + "/base/bin");
  // In both: that of the environment counts.
  folder.write("venv/lib/python3.11/os.py", "changed");
  const auto environment = examine_environment(folder.path + "/venv").value();
  CHECK(!environment.uses_host_python);
  CHECK(describe(environment) == "Python 3.11, its interpreter travels");
  const auto files = files_of(folder.path + "/venv");
  CHECK(files.count("pyvenv.cfg") == 0);
  CHECK(files.at("bin/python3.11").source == folder.path + "/base/bin/python3.11");
  CHECK(files.at("bin/python").file.link_target == "python3.11");
  CHECK(files.at("bin/python3").file.link_target == "python3.11");
  CHECK(files.at("lib/python3.11/os.py").source == folder.path + "/venv/lib/python3.11/os.py");
  CHECK(files.count("include/python3.11/Python.h") == 1);
  CHECK(files.count("lib/python3.11/site-packages/mine/__init__.py") == 1);
  CHECK(files.count("lib/python3.11/test/test_os.py") == 0);
  CHECK(files.count("lib/python3.11/config-3.11/libpython3.11.a") == 0);
  CHECK(files.count("lib/python3.11/site-packages/pip/__init__.py") == 0);
  CHECK(files.count("share/man/python.1") == 0);
}

TEST_CASE("packages of the Python below travel if the environment uses them") {
  Folder folder;
  folder.make_installation("base");
  folder.make_virtual("venv", folder.path + "/base/bin");
  folder.write("venv/pyvenv.cfg",
               "home = " + folder.path + "/base/bin\n" +
                   "include-system-site-packages = true\nversion_info = 3.11.2.final.0\n");
  CHECK(files_of(folder.path + "/venv").count("lib/python3.11/site-packages/pip/__init__.py") == 1);
}

TEST_CASE("a folder with its own Python travels whole") {
  Folder folder;
  folder.make_installation("env");
  folder.write("env/conda-meta/history", "");
  folder.write("env/pkgs/cached", "what conda keeps");
  const auto environment = examine_environment(folder.path + "/env").value();
  CHECK(environment.is_conda);
  const auto paths = environment_paths(environment);
  CHECK(paths.front() == std::pair<std::string, std::string>{"PATH", "@environment@/bin"});
  CHECK(paths.at(1).first == "CONDA_PREFIX");
  const auto files = files_of(folder.path + "/env");
  CHECK(files.count("share/man/python.1") == 1);
  CHECK(files.count("lib/python3.11/site-packages/pip/__init__.py") == 1);
  CHECK(files.count("pkgs/cached") == 0);
}

TEST_CASE("scripts start the Python of their own environment") {
  Folder folder;
  folder.make_installation("env");
  const std::string bin = folder.path + "/env/bin";
  const std::string rest = "import mine\n";
  folder.write("env/bin/plain", "#!" + bin + "/python3\n" + rest, 0755);
  folder.write("env/bin/words", "#!" + bin + "/python -sE\n" + rest, 0755);
  folder.write("env/bin/long",
               "#!/bin/sh\n'''exec' " + bin + "/python \"$0\" \"$@\"\n' '''\n" + rest, 0755);
  folder.write("env/bin/blanks",
               "#!/bin/sh\n'''exec' \"" + bin + "/python\" \"$0\" \"$@\"\n' '''\n" + rest, 0755);
  folder.write("env/bin/other", "#!/usr/bin/python3\n" + rest, 0755);
  folder.write("env/bin/shell", "#!/bin/sh\necho\n", 0755);
  const auto files = files_of(folder.path + "/env");
  const auto text_of = [&](const std::string& name) {
    const PartFile& file = files.at("bin/" + name);
    std::ifstream source(file.source);
    const std::string text{std::istreambuf_iterator<char>(source), {}};
    CHECK(file.file.size_bytes == file.head.size() + text.size() - file.replaced);
    return file.head + text.substr(file.replaced);
  };
  const std::string begin = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/";
  const std::string end = " \"$0\" \"$@\"\n' '''\n" + rest;
  CHECK(text_of("plain") == begin + "python3" + end);
  CHECK(text_of("words") == begin + "python -sE" + end);
  CHECK(text_of("long") == begin + "python" + end);
  CHECK(text_of("blanks") == begin + "python" + end);
  CHECK(text_of("other") == "#!/usr/bin/python3\n" + rest);
  CHECK(text_of("shell") == "#!/bin/sh\necho\n");
}

TEST_CASE("compiled modules travel where Python would use them") {
  Folder folder;
  folder.make_installation("env");
  const std::string library = "env/lib/python3.11/";
  const std::string compiled = library + "__pycache__/";
  const auto compile = [&](const std::string& name, std::uint32_t flags, std::uint32_t size) {
    folder.write(library + name + ".py", "12345");
    struct stat info {};
    REQUIRE(::stat((folder.path + "/" + library + name + ".py").c_str(), &info) == 0);
    folder.write(compiled + name + ".cpython-311.pyc",
                 "MAGI" + number(flags) + number(static_cast<std::uint32_t>(info.st_mtim.tv_sec)) +
                     number(size) + "code");
  };
  compile("good", 0, 5);
  compile("old", 0, 6);
  compile("hashed", 1, 7);
  folder.write(compiled + "gone.cpython-311.pyc", "MAGI" + number(0) + number(0) + number(0));
  folder.write(compiled + "kept.nbi", "numba's");
  const auto files = files_of(folder.path + "/env");
  const std::string there = "lib/python3.11/__pycache__/";
  const PartFile& good = files.at(there + "good.cpython-311.pyc");
  CHECK(good.head == "MAGI" + number(1) + number(0) + number(0));
  CHECK(good.replaced == 16);
  CHECK(files.at(there + "hashed.cpython-311.pyc").head.empty());
  CHECK(files.count(there + "old.cpython-311.pyc") == 0);
  CHECK(files.count(there + "gone.cpython-311.pyc") == 0);
  CHECK(files.count(there + "kept.nbi") == 0);
}

TEST_CASE("the same contents elsewhere are called the same") {
  Folder folder;
  for (const char* name : {"one", "another"}) {
    folder.make_installation(name);
    folder.write(std::string(name) + "/bin/tool",
                 "#!" + folder.path + "/" + name + "/bin/python\nrest\n", 0755);
  }
  CHECK(hashes_of(folder.path + "/one") == hashes_of(folder.path + "/another"));
  TreeMemory none("", "");
  const auto tree = read_user_tree({{folder.path + "/one", ""}}, 1'000'000, none).value();
  CHECK(hashes_of(folder.path + "/one").find(tree.parts.front().hash) == std::string::npos);
}

TEST_CASE("what lies outside of an environment is named") {
  Folder folder;
  folder.make_installation("env");
  const std::string packages = "env/lib/python3.11/site-packages/";
  folder.write(packages + "a-1.0.dist-info/direct_url.json",
               R"({"dir_info": {"editable": true}, "url": "file:///home/me/a"})");
  folder.write(packages + "__editable__.a.pth", "/home/me/a/src\n");
  folder.write(packages + "b-1.0.dist-info/direct_url.json",
               R"({"dir_info": {}, "url": "file:///home/me/b"})");
  folder.write(packages + "c.pth",
               "# c\nimport sys\n/srv/c\n../relative\n" + folder.path + "/env/lib\n");
  folder.write(packages + "d-1.0.dist-info/direct_url.json", "no JSON");
  const auto environment = examine_environment(folder.path + "/env").value();
  CHECK(environment.outside == std::vector<std::string>{"a (/home/me/a)", "c.pth (/srv/c)"});
}

TEST_CASE("a program of the environment is named by its path here") {
  Folder folder;
  folder.make_installation("env");
  folder.link("short", folder.path + "/env");
  const auto environment = examine_environment(folder.path + "/short").value();
  CHECK(program_there(environment, folder.path + "/env/bin/python") == "python");
  CHECK(program_there(environment, folder.path + "/short/bin/tool") == "tool");
  CHECK(program_there(environment, "/usr/bin/python3") == "/usr/bin/python3");
  CHECK(program_there(environment, "python") == "python");
}

TEST_CASE("a host with another processor cannot run it") {
  PythonEnvironment environment;
  environment.path = ".venv";
  Hello host;
  host.machine = "aarch64";
  CHECK(!why_unfit(environment, host));  // its purpose is unknown
  environment.machine = "aarch64";
  CHECK(!why_unfit(environment, host));
  environment.machine = "x86_64";
  const auto failure = why_unfit(environment, host);
  REQUIRE(failure);
  CHECK(failure->code == "E_SHIP");
  CHECK(failure->message == "its processor is aarch64, and .venv of --ship-env is for x86_64");
}

TEST_CASE("what cannot travel as an environment says why") {
  Folder folder;
  folder.write("empty/file", "");
  CHECK(fault_of(folder.path + "/none").find("/none: no such folder") != std::string::npos);
  CHECK(fault_of(folder.path + "/empty").find("neither pyvenv.cfg nor bin/python") !=
        std::string::npos);
  folder.make_installation("base");
  folder.link("linked/bin/python", folder.path + "/base/bin/python3.11");
  CHECK(fault_of(folder.path + "/linked").find("leads to " + folder.path + "/base") !=
        std::string::npos);
  folder.make_virtual("venv", folder.path + "/gone");
  CHECK(fault_of(folder.path + "/venv").find("gone/python3.11, is not there") != std::string::npos);
  folder.write("old/pyvenv.cfg", "home = /usr/bin\n");
  CHECK(fault_of(folder.path + "/old").find("names no version") != std::string::npos);
}
