// SPDX-License-Identifier: Apache-2.0
// Bundles and shipped files: whole or not at all, whatever arrives and whichever process is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;

namespace fs = std::filesystem;

namespace {

std::string noise(std::size_t size) {
  std::string bytes;
  std::uint32_t state = 12345;
  while (bytes.size() < size) {
    state = state * 1664525u + 1013904223u;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

PackedBundle small_bundle() {
  return pack({{"bin/tool", "#!/bin/sh\necho tool runs\n"},
               {"lib/a/b/c/deep.so", noise(300'000)},
               {"lib/empty", ""},
               {"python/x.py", "x = 1\n"}});
}

HostOrder bundle_order() {
  auto order = make_order({"tool"});
  order.prepend_paths = {{"PATH", "@bundle@/bin"}, {"HORA_TEST_ROOT", "@bundle@"}};
  return order;
}

struct CacheScene {
  TemporaryDirectory directory;
  std::string cache = directory / "cache";
  std::vector<std::string> arguments(const std::string& hash) const {
    return {"--cache", cache, "--parts", hash};
  }
};

bool has_unfinished(const std::string& cache) {
  if (!fs::exists(cache)) return false;
  const auto names = names_in(cache);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.rfind(".incoming-", 0) == 0; });
}

// Half of a bundle has come.
void send_half(AgentDriver& agent, const PackedBundle& bundle, const std::string& cache) {
  agent.send(FrameType::kPart, encode(bundle.header));
  agent.send(FrameType::kData, std::string_view(bundle.data).substr(0, bundle.data.size() / 2));
  for (int i = 0; i < 20'000 && !has_unfinished(cache); ++i) ::usleep(1'000);
  REQUIRE(has_unfinished(cache));
}

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// A file system of its own on a directory; needs root.
class Mount {
 public:
  explicit Mount(std::string path) : path_(std::move(path)) {}
  ~Mount() {
    if (mounted_) ::umount(path_.c_str());
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  void tmpfs(unsigned long flags, const char* options) {
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", flags, options) == 0;
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

// The agent refuses what it is sent, says so, and leaves nothing in the cache.
void check_refused(CacheScene& scene, AgentDriver& agent, const std::string& part_of_message,
                   const std::string& code = "E_CACHE") {
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  INFO(agent.failure->message);
  CHECK(agent.failure->code == code);
  CHECK(agent.failure->message.find(part_of_message) != std::string::npos);
  if (fs::exists(scene.cache)) CHECK(names_in(scene.cache).empty());
}

}  // namespace

TEST_CASE("a bundle is unpacked once and used twice") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  {
    AgentDriver agent(scene.arguments(bundle.header.hash));
    CHECK(agent.hello().missing_parts == std::vector{bundle.header.hash});
    send_bundle(agent, bundle);
    agent.run(bundle_order());
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
  CHECK(names_in(scene.cache) == std::vector<std::string>{bundle.name()});
  const std::string entry = scene.cache + "/" + bundle.name();
  CHECK(content_of(entry + "/lib/a/b/c/deep.so") == noise(300'000));
  CHECK(fs::exists(entry + "/lib/empty"));
  struct stat info {};
  REQUIRE(::stat(scene.cache.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  {
    AgentDriver agent(scene.arguments(bundle.header.hash));
    CHECK(agent.hello().missing_parts.empty());
    agent.run(bundle_order());
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
}

TEST_CASE("a bundle of parts asks only for those that no other bundle has") {
  CacheScene scene;
  const PackedBundle core = small_bundle();
  const PackedBundle extra = pack({{"lib/extra.so", noise(100'000)}});
  const std::vector<std::string> both = {"--cache", scene.cache, "--parts",
                                         core.header.hash + "," + extra.header.hash};
  const std::string name = bundle_name({core.header.hash, extra.header.hash});
  {
    AgentDriver agent(scene.arguments(core.header.hash));
    send_bundle(agent, core);
    agent.run(bundle_order());
  }
  {
    AgentDriver agent(both);
    CHECK(agent.hello().missing_parts == std::vector{extra.header.hash});
    send_bundle(agent, extra);
    agent.run(bundle_order());
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
  // Each stands alone: what one loses the other keeps.
  fs::remove_all(scene.cache + "/" + core.name());
  CHECK(content_of(scene.cache + "/" + name + "/lib/a/b/c/deep.so") == noise(300'000));
  CHECK(content_of(scene.cache + "/" + name + "/lib/extra.so") == noise(100'000));
  {
    AgentDriver agent(both);
    CHECK(agent.hello().missing_parts.empty());
    agent.run(bundle_order());
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
  // All of a smaller one is here: nothing is sent.
  AgentDriver agent(scene.arguments(core.header.hash));
  CHECK(agent.hello().missing_parts.empty());
  agent.run(bundle_order());
  CHECK(agent.output[{0, 1}] == "tool runs\n");
  CHECK(names_in(scene.cache).size() == 2);
}

TEST_CASE("the bytes of a part are on the disk once") {
  CacheScene scene;
  const PackedBundle core = small_bundle();
  const PackedBundle extra = pack({{"lib/extra.so", noise(100'000)}});
  for (const std::string& parts : {core.header.hash, core.header.hash + "," + extra.header.hash}) {
    AgentDriver agent(scene.arguments(parts));
    for (const std::string& hash : agent.hello().missing_parts) {
      send_bundle(agent, hash == core.header.hash ? core : extra);
    }
    agent.run(make_order({"true"}));
  }
  const std::string name = bundle_name({core.header.hash, extra.header.hash});
  CHECK(fs::hard_link_count(scene.cache + "/" + name + "/bin/tool") == 2);
  CHECK(fs::hard_link_count(scene.cache + "/" + name + "/lib/extra.so") == 1);
}

TEST_CASE("a part of a damaged bundle is sent again") {
  CacheScene scene;
  const PackedBundle core = small_bundle();
  const PackedBundle extra = pack({{"lib/extra.so", noise(100'000)}});
  {
    AgentDriver agent(scene.arguments(core.header.hash));
    send_bundle(agent, core);
    agent.run(make_order({"true"}));
  }
  const std::string entry = scene.cache + "/" + core.name();
  SECTION("a file is cut") { write_file(entry + "/python/x.py", "x"); }
  SECTION("others may write to it") {
    fs::permissions(entry, fs::perms::others_write, fs::perm_options::add);
  }
  SECTION("it is under another name") {
    fs::rename(entry, scene.cache + "/" + sha256_hex("another"));
  }
  AgentDriver agent(scene.arguments(core.header.hash + "," + extra.header.hash));
  CHECK(agent.hello().missing_parts == std::vector{core.header.hash, extra.header.hash});
  send_bundle(agent, core);
  send_bundle(agent, extra);
  agent.run(bundle_order());
  CHECK(agent.output[{0, 1}] == "tool runs\n");
}

namespace {

// The user's folder in two parts, one of them with an empty folder in it.
struct Project {
  PackedBundle code = pack({{"src/run", "#!/bin/sh\ncat src/data; ls src\n"}});
  PackedBundle data = pack({{"src/data", "data\n"}});

  Project() {
    BundleFile empty;
    empty.path = "src/empty";
    empty.mode = S_IFDIR | 0755;
    code.header.files.push_back(empty);
  }
  std::vector<std::string> parts() const { return {code.header.hash, data.header.hash}; }
  std::vector<std::string> offer(AgentDriver& agent) const {
    agent.send(FrameType::kTree, encode(OfferTree{parts()}));
    return decode<TreeState>(agent.wait_for(FrameType::kTreeState).payload).value().missing;
  }
  static HostOrder order(const std::string& command) {
    auto order = make_order({"sh", "-c", command});
    order.ship_directory = true;
    return order;
  }
};

}  // namespace

TEST_CASE("a user's folder is kept in the cache and copied for the job") {
  CacheScene scene;
  const Project project;
  {
    AgentDriver agent({"--cache", scene.cache});
    (void)agent.hello();
    CHECK(project.offer(agent) == project.parts());
    send_bundle(agent, project.code);
    send_bundle(agent, project.data);
    agent.run(Project::order("sh src/run; echo spoilt > src/data; touch src/empty/x"));
    CHECK(agent.output[{0, 1}] == "data\ndata\nempty\nrun\n");
  }
  // What the ranks have written is gone, and the next job is sent nothing.
  AgentDriver agent({"--cache", scene.cache});
  (void)agent.hello();
  CHECK(project.offer(agent).empty());
  agent.run(Project::order("cat src/data; ls src/empty; stat -c %a \"$PWD\""));
  CHECK(agent.output[{0, 1}] == "data\n700\n");
  CHECK(names_in(scene.cache) == std::vector{bundle_name(project.parts())});
}

TEST_CASE("of a user's folder, parts that another one has are not sent again") {
  CacheScene scene;
  const Project project;
  {
    AgentDriver agent({"--cache", scene.cache});
    (void)agent.hello();
    (void)project.offer(agent);
    send_bundle(agent, project.code);
    send_bundle(agent, project.data);
    agent.run(Project::order("true"));
  }
  const PackedBundle more = pack({{"src/more", "more"}});
  AgentDriver agent({"--cache", scene.cache});
  (void)agent.hello();
  agent.send(FrameType::kTree, encode(OfferTree{{project.code.header.hash, more.header.hash}}));
  const auto state = decode<TreeState>(agent.wait_for(FrameType::kTreeState).payload).value();
  CHECK(state.missing == std::vector{more.header.hash});
  send_bundle(agent, more);
  agent.run(Project::order("ls src"));
  CHECK(agent.output[{0, 1}] == "empty\nmore\nrun\n");
}

TEST_CASE("an order before all of a user's folder is here, and a second folder") {
  CacheScene scene;
  const Project project;
  AgentDriver agent({"--cache", scene.cache});
  (void)agent.hello();
  (void)project.offer(agent);
  SECTION("an order") {
    send_bundle(agent, project.code);
    agent.send_order(Project::order("true"));
  }
  SECTION("a second folder") { agent.send(FrameType::kTree, encode(OfferTree{{"a"}})); }
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_PROTOCOL");
  agent.close();
  CHECK((!fs::exists(scene.cache) || names_in(scene.cache).empty()));
}

TEST_CASE("a killed agent leaves no half of a user's folder") {
  CacheScene scene;
  const Project project;
  AgentDriver agent({"--cache", scene.cache});
  (void)agent.hello();
  (void)project.offer(agent);
  send_bundle(agent, project.code);
  agent.send(FrameType::kPart, encode(project.data.header));
  for (int i = 0; i < 20'000 && !has_unfinished(scene.cache); ++i) ::usleep(1'000);
  REQUIRE(has_unfinished(scene.cache));
  REQUIRE(::kill(agent.agent(), SIGKILL) == 0);
  REQUIRE(agent.wait_for_end());
  CHECK(names_in(scene.cache).empty());
}

TEST_CASE("a part for hosts with a GPU") {
  CacheScene scene;
  const PackedBundle core = small_bundle();
  const PackedBundle extra = pack({{"lib/extra.so", noise(100'000)}});
  AgentDriver agent(scene.arguments(core.header.hash + "," + extra.header.hash + ":gpu"));
  const Hello hello = agent.hello();
  const bool asked =
      std::count(hello.missing_parts.begin(), hello.missing_parts.end(), extra.header.hash) == 1;
  CHECK(asked == (hello.gpus > 0));
}

TEST_CASE("an order in the middle of a bundle's parts") {
  CacheScene scene;
  const PackedBundle core = small_bundle();
  const PackedBundle extra = pack({{"lib/extra.so", noise(100'000)}});
  AgentDriver agent(scene.arguments(core.header.hash + "," + extra.header.hash));
  send_bundle(agent, core);
  agent.send_order(bundle_order());
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_CACHE");
  agent.close();
  CHECK(names_in(scene.cache).empty());
}

TEST_CASE("a bundle in one-byte pieces") {
  CacheScene scene;
  const PackedBundle bundle = pack({{"a", "aaa"}, {"b", ""}, {"c", "cc"}});
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle, 1);
  agent.run(make_order({"true"}));
  CHECK(content_of(scene.cache + "/" + bundle.name() + "/c") == "cc");
}

TEST_CASE("links inside a bundle") {
  CacheScene scene;
  PackedBundle bundle = pack({{"lib/libx.so.1", "x"}});
  BundleFile link;
  link.path = "lib/libx.so";
  link.link_target = "libx.so.1";
  bundle.header.files.push_back(link);
  link.path = "other/deep/libx.so";
  link.link_target = "../../lib/libx.so";
  bundle.header.files.push_back(link);
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle);
  agent.run(make_order({"true"}));
  CHECK(content_of(scene.cache + "/" + bundle.name() + "/other/deep/libx.so") == "x");
}

TEST_CASE("paths that lead out of the bundle are refused") {
  for (const std::string path : {"../x", "/x", "a/../../x", "a//x", "./x", "", "a/.."}) {
    INFO(path);
    CacheScene scene;
    PackedBundle bundle = pack({{"x", "x"}});
    bundle.header.files[0].path = path;
    AgentDriver agent(scene.arguments(bundle.header.hash));
    send_bundle(agent, bundle);
    check_refused(scene, agent, "path");
    CHECK(!fs::exists(scene.directory / "x"));
  }
}

TEST_CASE("links that lead out of the bundle are refused") {
  for (const std::string target : {"../x", "/etc/passwd", "a/../../../x"}) {
    INFO(target);
    CacheScene scene;
    PackedBundle bundle = pack({{"x", "x"}});
    BundleFile link;
    link.path = "link";
    link.link_target = target;
    bundle.header.files.push_back(link);
    AgentDriver agent(scene.arguments(bundle.header.hash));
    send_bundle(agent, bundle);
    check_refused(scene, agent, "links");
  }
}

TEST_CASE("a file cannot be written through a link of the same bundle") {
  CacheScene scene;
  PackedBundle bundle = pack({{"dir/x", "x"}});
  BundleFile link;
  link.path = "dir";
  link.link_target = "elsewhere";
  bundle.header.files.insert(bundle.header.files.begin(), link);
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle);
  check_refused(scene, agent, "File exists");
}

TEST_CASE("damaged bundles are refused") {
  PackedBundle bundle = small_bundle();
  std::string message = "";
  SECTION("another content") {
    bundle.header.packed_sha256 = sha256_hex("another");
    message = "is damaged";
  }
  SECTION("no zstd frame") {
    bundle.set_data("this is not a zstd frame");
    message = "not a valid zstd frame";
  }
  SECTION("a frame that needs more memory than an agent gives") {
    // Of one segment of 64 MiB, as a descriptor without a content size says.
    bundle.set_data(std::string("\x28\xb5\x2f\xfd\x00\x80\x01\x00\x00", 9));
    message = "not a valid zstd frame";
  }
  SECTION("a flipped bit") { bundle.data[bundle.data.size() / 2] ^= 0x10; }
  SECTION("cut off") {
    bundle.data.resize(bundle.data.size() / 2);
    message = "ended early";
  }
  SECTION("too long") {
    bundle.header.files.pop_back();
    message = "more bytes";
  }
  SECTION("data behind the stream") {
    bundle.set_data(bundle.data + "tail");
    message = "behind the end";
  }
  SECTION("the same file twice") {
    bundle.header.files[1].path = bundle.header.files[0].path;
    message = "File exists";
  }
  CacheScene scene;
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle);
  check_refused(scene, agent, message);
}

TEST_CASE("a part that was not announced to the agent") {
  for (const std::string hash : {"", "../../escape/aaaaaaaaaaaaa", "ABCDEF0123456789", "abc"}) {
    CacheScene scene;
    PackedBundle bundle = small_bundle();
    AgentDriver agent(scene.arguments(bundle.header.hash));
    bundle.header.hash = hash;
    send_bundle(agent, bundle);
    check_refused(scene, agent, "has not asked for", "E_PROTOCOL");
  }
}

TEST_CASE("the launcher dies in the middle of a transfer") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_half(agent, bundle, scene.cache);
  agent.close();
  REQUIRE(agent.reap_shim());
  CHECK(names_in(scene.cache).empty());
}

TEST_CASE("the agent is killed in the middle of a transfer") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  AgentDriver agent(scene.arguments(bundle.header.hash));
  agent.hello();
  send_half(agent, bundle, scene.cache);
  ::kill(agent.agent(), SIGKILL);
  REQUIRE(agent.reap_shim());
  CHECK(names_in(scene.cache).empty());
}

TEST_CASE("an agent without descriptors leaves its unfinished entry to the shim") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  AgentDriver agent(scene.arguments(bundle.header.hash));
  agent.hello();
  send_half(agent, bundle, scene.cache);
  const rlimit none{0, 0};
  REQUIRE(::prlimit(agent.agent(), RLIMIT_NOFILE, &none, nullptr) == 0);
  agent.close();
  REQUIRE(agent.reap_shim());
  CHECK(names_in(scene.cache).empty());
}

TEST_CASE("what killed agents and shims left is removed by the next transfer") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  {
    AgentDriver agent(scene.arguments(bundle.header.hash));
    agent.hello();
    send_half(agent, bundle, scene.cache);
    REQUIRE(agent.kill_both());
  }
  CHECK(names_in(scene.cache).size() == 2);  // the unfinished entry, and the mark of use
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle);
  agent.run(make_order({"true"}));
  CHECK(names_in(scene.cache) == std::vector<std::string>{bundle.name()});
}

// Where a home is shared, a lock of another host, or of another mount, may not be seen here.
TEST_CASE("what another host has made goes only when it is a day old") {
  CacheScene scene;
  const std::vector<std::string> theirs = {
      ".incoming-0123456789abcdef-0123456789abcdef", ".incoming-0123456789abcdef",
      ".used-0123456789abcdef-0123456789abcdef-----------------0123456789abcdef-elsewhere"};
  for (const std::string& name : theirs) fs::create_directories(scene.cache + "/" + name + "/a/b");
  write_file(scene.cache + "/.ship-0123456789abcdef", "half an agent");
  const PackedBundle bundle = small_bundle();
  const auto transfer = [&] {
    fs::remove_all(scene.cache + "/" + bundle.name());
    AgentDriver agent(scene.arguments(bundle.header.hash));
    send_bundle(agent, bundle);
    agent.run(make_order({"true"}));
    return names_in(scene.cache).size() - 1;
  };
  CHECK(transfer() == 4);
  for (const std::string& name : names_in(scene.cache)) {
    make_older(scene.cache + "/" + name, std::chrono::hours(23));
  }
  CHECK(transfer() == 4);
  for (const std::string& name : names_in(scene.cache)) {
    make_older(scene.cache + "/" + name, std::chrono::hours(25));
  }
  CHECK(transfer() == 0);
}

TEST_CASE("a bundle that does not fit goes to the next directory, and is found there") {
  TemporaryDirectory directory;
  const std::string first = directory / "home/.cache/hora";
  const std::string second = directory / ("tmp/hora-" + std::to_string(::geteuid()));
  fs::create_directories(first);
  fs::create_directories(directory / "tmp");
  const Variable home("HOME", directory / "home");
  const Variable cache("XDG_CACHE_HOME", "");
  const Variable temporary("TMPDIR", directory / "tmp");
  const PackedBundle bundle = small_bundle();
  Mount mount(first);
  SECTION("full in the middle of it") { mount.tmpfs(0, "size=100k,mode=700"); }
  SECTION("full before its last bytes") { mount.tmpfs(0, "size=304k,mode=700"); }
  SECTION("no room for a name") { mount.tmpfs(0, "nr_inodes=1,mode=700"); }
  SECTION("read-only") { mount.tmpfs(MS_RDONLY, "mode=700"); }
  if (!mount.mounted()) return;
  const std::vector<std::string> arguments = {"--cache", first, "--parts", bundle.header.hash};
  {
    AgentDriver agent(arguments);
    CHECK(agent.hello().missing_parts == std::vector{bundle.header.hash});
    send_bundle(agent, bundle);
    auto order = shell_order("tool; echo $HORA_TEST_ROOT; ls -A " + second);
    order.prepend_paths = bundle_order().prepend_paths;
    agent.run(order);
    // While it runs it is marked as in use there.
    CHECK(agent.output[{0, 1}].find("tool runs\n" + second + "/" + bundle.name() + "\n.used-") ==
          0);
  }
  CHECK(names_in(first).empty());
  REQUIRE(fs::exists(second));
  CHECK(names_in(second) == std::vector<std::string>{bundle.name()});
  CHECK(content_of(second + "/" + bundle.name() + "/lib/a/b/c/deep.so") == noise(300'000));
  {
    AgentDriver agent(arguments);
    REQUIRE(agent.hello().missing_parts.empty());
    agent.run(bundle_order());
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
  CHECK(names_in(second) == std::vector<std::string>{bundle.name()});
}

TEST_CASE("parts that are there already move along to the next directory") {
  TemporaryDirectory directory;
  const std::string first = directory / "home/.cache/hora";
  const std::string second = directory / ("tmp/hora-" + std::to_string(::geteuid()));
  fs::create_directories(first);
  fs::create_directories(directory / "tmp");
  const Variable home("HOME", directory / "home");
  const Variable cache("XDG_CACHE_HOME", "");
  const Variable temporary("TMPDIR", directory / "tmp");
  Mount home_directory(first);
  home_directory.tmpfs(0, "size=500k,mode=700");
  if (!home_directory.mounted()) return;     // needs root
  const PackedBundle core = small_bundle();  // 300 kB
  const PackedBundle middle = pack({{"lib/middle.so", noise(100'000)}});
  const PackedBundle extra = pack({{"lib/extra.so", noise(400'000)}});
  {
    AgentDriver agent({"--cache", first, "--parts", core.header.hash});
    send_bundle(agent, core);
    agent.run(bundle_order());
  }
  const std::string parts = core.header.hash + "," + middle.header.hash + "," + extra.header.hash;
  AgentDriver agent({"--cache", first, "--parts", parts});
  CHECK(agent.hello().missing_parts == std::vector{middle.header.hash, extra.header.hash});
  send_bundle(agent, middle);
  send_bundle(agent, extra);
  agent.run(bundle_order());
  CHECK(agent.output[{0, 1}] == "tool runs\n");
  const std::string entry =
      second + "/" + bundle_name({core.header.hash, middle.header.hash, extra.header.hash});
  CHECK(content_of(entry + "/lib/a/b/c/deep.so") == noise(300'000));
  CHECK(content_of(entry + "/lib/middle.so") == noise(100'000));
  CHECK(content_of(entry + "/lib/extra.so") == noise(400'000));
  CHECK((fs::status(entry + "/bin/tool").permissions() & fs::perms::owner_exec) != fs::perms::none);
  CHECK(names_in(first) == std::vector<std::string>{core.name()});
}

TEST_CASE("a bundle that is damaged is damaged in every directory") {
  TemporaryDirectory directory;
  const std::string first = directory / "home/.cache/hora";
  const Variable home("HOME", directory / "home");
  const Variable cache("XDG_CACHE_HOME", "");
  const Variable temporary("TMPDIR", directory / "tmp");
  PackedBundle bundle = small_bundle();
  bundle.header.packed_sha256 = sha256_hex("another");
  AgentDriver agent({"--cache", first, "--parts", bundle.header.hash});
  send_bundle(agent, bundle);
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_CACHE");
  CHECK(agent.failure->message.find(directory / "tmp") == std::string::npos);
  CHECK(!fs::exists(directory / "tmp"));
}

TEST_CASE("two launchers race") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(scene.cache);
    AgentDriver first(scene.arguments(bundle.header.hash));
    AgentDriver second(scene.arguments(bundle.header.hash));
    CHECK(!first.hello().missing_parts.empty());
    CHECK(!second.hello().missing_parts.empty());
    for (AgentDriver* agent : {&first, &second}) {
      agent->send(FrameType::kPart, encode(bundle.header));
    }
    for (std::size_t at = 0; at < bundle.data.size(); at += 50'000) {
      first.send(FrameType::kData, std::string_view(bundle.data).substr(at, 50'000));
      second.send(FrameType::kData, std::string_view(bundle.data).substr(at, 50'000));
    }
    first.send(FrameType::kDataEnd);
    second.send(FrameType::kDataEnd);
    first.run(bundle_order());
    second.run(bundle_order());
    CHECK(first.output[{0, 1}] == "tool runs\n");
    CHECK(second.output[{0, 1}] == "tool runs\n");
    CHECK(names_in(scene.cache) == std::vector<std::string>{bundle.name()});
  }
}

TEST_CASE("an entry that is not whole, or not ours alone, is replaced") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  const std::string entry = scene.cache + "/" + bundle.name();
  {
    AgentDriver agent(scene.arguments(bundle.header.hash));
    send_bundle(agent, bundle);
    agent.run(make_order({"true"}));
  }
  SECTION("a file is gone") { fs::remove(entry + "/python/x.py"); }
  SECTION("a file is cut") { write_file(entry + "/python/x.py", "x"); }
  SECTION("the manifest is damaged") { write_file(entry + "/.hora-manifest", "?"); }
  SECTION("it is a plain file") {
    fs::remove_all(entry);
    write_file(entry, "?");
  }
  SECTION("it is another user's") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(entry.c_str(), 12345, 12345) == 0);
  }
  SECTION("others may write to it") {
    fs::permissions(entry, fs::perms::others_write, fs::perm_options::add);
  }
  AgentDriver agent(scene.arguments(bundle.header.hash));
  CHECK(agent.hello().missing_parts == std::vector{bundle.header.hash});
  send_bundle(agent, bundle);
  agent.run(bundle_order());
  CHECK(agent.output[{0, 1}] == "tool runs\n");
  CHECK(content_of(entry + "/python/x.py") == "x = 1\n");
  CHECK(names_in(scene.cache) == std::vector<std::string>{bundle.name()});
}

TEST_CASE("a cache that another user prepared") {
  CacheScene scene;
  const PackedBundle bundle = small_bundle();
  fs::create_directories(scene.directory / "elsewhere");
  std::string message;
  SECTION("a symbolic link") {
    fs::create_directory_symlink(scene.directory / "elsewhere", scene.cache);
    message = scene.cache;
  }
  SECTION("another owner") {
    if (::geteuid() != 0) return;
    fs::create_directories(scene.cache);
    REQUIRE(::chown(scene.cache.c_str(), 12345, 12345) == 0);
    message = "belongs to another user";
  }
  SECTION("a plain file") {
    write_file(scene.cache, "");
    message = "Not a directory";
  }
  SECTION("every user may replace it") {
    fs::permissions(fs::path(scene.cache).parent_path(), fs::perms::all);
    message = "can be written by every user";
  }
  AgentDriver agent(scene.arguments(bundle.header.hash));
  CHECK(agent.hello().missing_parts == std::vector{bundle.header.hash});
  send_bundle(agent, bundle);
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  INFO(agent.failure->message);
  CHECK(agent.failure->code == "E_CACHE");
  CHECK(agent.failure->message.find(message) != std::string::npos);
  CHECK(names_in(scene.directory / "elsewhere").empty());
}

TEST_CASE("a cache that is open to others is closed to them") {
  CacheScene scene;
  fs::create_directories(scene.cache);
  fs::permissions(scene.cache, fs::perms::all);
  const PackedBundle bundle = small_bundle();
  AgentDriver agent(scene.arguments(bundle.header.hash));
  send_bundle(agent, bundle);
  agent.run(make_order({"true"}));
  CHECK((fs::status(scene.cache).permissions() & fs::perms::others_all) == fs::perms::none);
}

TEST_CASE("file systems that cannot hold a bundle") {
  if (::geteuid() != 0) return;  // needs mount
  CacheScene scene;
  fs::create_directories(scene.cache);
  const PackedBundle bundle = small_bundle();
  std::string message;
  unsigned long flags = 0;
  const char* options = "size=100k,mode=700";
  std::string code = "E_CACHE";
  SECTION("full") {
    message = "No space left on device";
    code = "E_DISK_FULL";
  }
  SECTION("read-only") {
    flags = MS_RDONLY;
    message = "Read-only file system";
  }
  SECTION("noexec") {
    flags = MS_NOEXEC;
    options = "size=10m,mode=700";
    message = "noexec";
  }
  if (::mount("tmpfs", scene.cache.c_str(), "tmpfs", flags, options) != 0) return;
  {
    AgentDriver agent(scene.arguments(bundle.header.hash));
    send_bundle(agent, bundle);
    check_refused(scene, agent, message, code);
  }
  ::umount(scene.cache.c_str());
}

TEST_CASE("a full disk is recognized by errno, not by the words of a path") {
  CacheScene scene;
  const std::string file = scene.directory / "No space left on device";
  write_file(file, "");
  const PackedBundle bundle = small_bundle();
  AgentDriver agent({"--cache", file + "/cache", "--parts", bundle.header.hash});
  send_bundle(agent, bundle);
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  INFO(agent.failure->message);
  CHECK(agent.failure->message.find("Not a directory") != std::string::npos);
  CHECK(agent.failure->code == "E_CACHE");
}

TEST_CASE("a bundle that is needed and was never sent") {
  CacheScene scene;
  AgentDriver agent({"--cache", scene.cache});
  agent.send_order(bundle_order());
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_CACHE");
}

TEST_CASE("a local bundle is used where it lies") {
  TemporaryDirectory directory;
  fs::create_directories(directory / "bin");
  write_file(directory / "bin/tool", "#!/bin/sh\necho $HORA_TEST_ROOT\n");
  fs::permissions(directory / "bin/tool", fs::perms::owner_all);
  AgentDriver agent({"--local-bundle", directory.path(), "--parts", "0123456789abcdef"});
  CHECK(agent.hello().missing_parts.empty());
  agent.run(bundle_order());
  CHECK(agent.output[{0, 1}] == directory.path() + "\n");
}

TEST_CASE("shipped files are where the ranks run, and gone afterwards") {
  const std::string script = "#!/bin/sh\npwd; cat data/input.txt\n";
  AgentDriver agent;
  ShipFile file{"run.sh", script.size(), 0755, ""};
  send_file(agent, file, script);
  const std::string input = noise(200'000);
  send_file(agent, {"data/input.txt", input.size(), 0644, ""}, input);
  send_file(agent, {"empty", 0, 0600, ""}, "");
  auto order = make_order({"./run.sh"});
  order.ship_directory = true;
  order.working_directory = "/no/such/place";
  agent.run(order);
  const std::string text = agent.output[{0, 1}];
  const std::string place = text.substr(0, text.find('\n'));
  CHECK(place.find("/hora-job-") != std::string::npos);
  CHECK(text.substr(place.size() + 1) == input);
  CHECK(!fs::exists(place));
}

TEST_CASE("a job folder goes even when the agent is killed") {
  AgentDriver agent;
  auto order = shell_order("pwd; mkdir -p a/b; chmod 000 a/b; exec sleep 1000");
  order.ship_directory = true;
  agent.start(order);
  agent.wait_for_output(0, "\n");
  std::string place = agent.output[{0, 1}];
  place.pop_back();
  for (int i = 0; i < 2'000 && !fs::exists(place + "/a/b"); ++i) ::usleep(1'000);
  CHECK(fs::exists(place));
  SECTION("agent") { ::kill(agent.agent(), SIGKILL); }
  SECTION("shim") { ::kill(agent.shim(), SIGKILL); }
  SECTION("launcher") { agent.close(); }
  if (agent.stream() >= 0) CHECK(agent.wait_for_end());
  agent.close();
  CHECK(agent.reap_shim());
  for (int i = 0; i < 5'000 && fs::exists(place); ++i) ::usleep(1'000);
  CHECK(!fs::exists(place));
}

TEST_CASE("a shipped file that arrives damaged") {
  AgentDriver agent;
  send_file(agent, {"x", 1, 0644, sha256_hex("y")}, "x");
  REQUIRE(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_SHIP");
}

TEST_CASE("a shipped name that leads out") {
  AgentDriver agent;
  send_file(agent, {"../x", 1, 0644, ""}, "x");
  REQUIRE(agent.wait_for_end());
  CHECK(agent.failure->code == "E_SHIP");
}
