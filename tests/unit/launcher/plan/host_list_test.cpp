// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/host_list.h"

#include <random>
#include <set>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::string_literals::operator""s;

std::vector<Host> list_of(std::string_view text) {
  auto hosts = parse_host_list(text, "-H");
  INFO(text);
  if (!hosts) FAIL(hosts.error().message);
  return *hosts;
}

std::vector<Host> file_of(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  INFO(text);
  if (!hosts) FAIL(hosts.error().message);
  return *hosts;
}

std::string list_error(std::string_view text) {
  auto hosts = parse_host_list(text, "-H");
  INFO(text);
  REQUIRE_FALSE(hosts);
  CHECK(hosts.error().code == ErrorCode::kUsage);
  return hosts.error().message;
}

std::string file_error(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  INFO(text);
  REQUIRE_FALSE(hosts);
  CHECK(hosts.error().code == ErrorCode::kUsage);
  return hosts.error().message;
}

using Hosts = std::vector<Host>;

TEST_CASE("hosts of several files are one list") {
  auto hosts = *parse_hostfile("a slots=2\nb\n", "f");
  REQUIRE(add_hosts(hosts, *parse_hostfile("c\nB slots=3\n", "g"), "g"));
  CHECK(format_host_list(hosts) == "a:2,b:4,c");
  const Status problem = add_hosts(hosts, *parse_hostfile("root@a\n", "h"), "h");
  REQUIRE_FALSE(problem);
  CHECK(problem.error().message.find("h: host a is listed for two users") == 0);
}

TEST_CASE("A host list names hosts and slots") {
  CHECK(list_of("a:2,b:1") == Hosts{{"a", "", 2}, {"b", "", 1}});
  CHECK(list_of(" a:2 , b-1.example.com:04 ") == Hosts{{"a", "", 2}, {"b-1.example.com", "", 4}});
  CHECK(list_of("a") == Hosts{{"a", "", std::nullopt}});
  CHECK(list_of("a:0,b:2") == Hosts{{"a", "", 0}, {"b", "", 2}});
  CHECK(list_of("root@10.0.0.7:65536") == Hosts{{"10.0.0.7", "root", 65536}});
  CHECK(list_of("me@corp.com@a:2") == Hosts{{"a", "me@corp.com", 2}});
}

TEST_CASE("A host may have a port") {
  const auto port = [](std::string_view text) { return list_of(text).front().port; };
  CHECK(list_of("ssh://a:2222:4") == Hosts{{"a", "", 4, {}, 2222}});
  CHECK(list_of("ssh://me@[fd00::7]:2222") == Hosts{{"fd00::7", "me", std::nullopt, {}, 2222}});
  CHECK(list_of("ssh://n[1-2]:22:8")[1] == Host{"n2", "", 8, {}, 22});
  CHECK(list_of("ssh://a") == Hosts{{"a", "", std::nullopt}});
  CHECK(file_of("a slots=4 port = 2222\n") == Hosts{{"a", "", 4, {}, 2222}});
  CHECK(file_of("ssh://a:2222 slots=4\n") == Hosts{{"a", "", 4, {}, 2222}});
  CHECK(port("a:2222") == std::nullopt);  // slots
  for (const char* text : {"ssh://a:2222:4", "ssh://me@[fd00::7]:2222", "ssh://a:22"}) {
    CHECK(format_host_list(list_of(text)) == text);
  }
  CHECK(list_error("a:2222:4").find("-H: column 7: a host with a port is written ssh://a:2222:4") ==
        0);
  CHECK(list_error("b,me@[::1]:22:4").find("is written ssh://me@[::1]:22:4") != std::string::npos);
  CHECK(list_error("ssh://a:0").find("1 to 65535") != std::string::npos);
  CHECK(list_error("ssh://a:65536").find("at most 65535") != std::string::npos);
  CHECK(list_error("ssh://a:").find("expected the port") != std::string::npos);
  CHECK(list_error("ssh://a:22:4:4").find("expected the number of slots") != std::string::npos);
  CHECK(list_error("ssh://fe80::1:22").find("in brackets") != std::string::npos);
  CHECK(list_error("ssh://a:22,ssh://a:23").find("two ports, 22 and 23") != std::string::npos);
  CHECK(list_error("a,ssh://a:23").find("the default one and 23") != std::string::npos);
  CHECK(file_error("a port=1 port=2\n").find("appears twice") != std::string::npos);
  CHECK(file_error("ssh://a:1 port=2\n").find("appears twice") != std::string::npos);
  CHECK(file_error("a ansible_port=22\n").find("is port=2222") != std::string::npos);
  CHECK(file_error("a port=65536\n").find("at most 65535") != std::string::npos);
  CHECK(file_error("a:2222 slots=2\n").find("is port=2222") != std::string::npos);
}

TEST_CASE("An IPv6 literal stands in brackets") {
  CHECK(list_of("[fe80::1%eth0]:4,u@[::1]") ==
        Hosts{{"fe80::1%eth0", "", 4}, {"::1", "u", std::nullopt}});
  CHECK(list_error("fe80::1").find("brackets: [fe80::1]") != std::string::npos);
  CHECK(list_error("[fe80::1").find("column 1: '[' has no ']'") != std::string::npos);
  CHECK(list_error("[fe80::zz]:1").find("not an IPv6 address") != std::string::npos);
  // A hostfile may hold any byte.
  CHECK(list_error("[::1\0x]:1"s).find("not an IPv6 address") != std::string::npos);
  CHECK(list_error("[::1]4").find("column 6: expected ':'") != std::string::npos);
}

TEST_CASE("A range names many hosts, zero-padded, and several ranges multiply") {
  CHECK(list_of("n[08-11,3]:8") ==
        Hosts{{"n08", "", 8}, {"n09", "", 8}, {"n10", "", 8}, {"n11", "", 8}, {"n3", "", 8}});
  CHECK(list_of("r[1-2]n[01-02].x") == Hosts{{"r1n01.x", "", std::nullopt},
                                             {"r1n02.x", "", std::nullopt},
                                             {"r2n01.x", "", std::nullopt},
                                             {"r2n02.x", "", std::nullopt}});
  CHECK(list_of("10.0.0.[1-2]:1") == Hosts{{"10.0.0.1", "", 1}, {"10.0.0.2", "", 1}});
  CHECK(list_of("u@n[0-1]") == Hosts{{"n0", "u", std::nullopt}, {"n1", "u", std::nullopt}});
  CHECK(list_error("n[1-999999999]").find("more than 200000 hosts") != std::string::npos);
  CHECK(list_error("n[1-2000]x[1-2000]").find("more than 200000 hosts") != std::string::npos);
  CHECK(list_error("n[9-1]").find("column 5: a range must count upwards") != std::string::npos);
  CHECK(list_error("n[1-").find("column 2: '[' has no ']'") != std::string::npos);
  CHECK(list_error("n[]").find("column 3: expected a number") != std::string::npos);
  CHECK(list_error("n]").find("without a '['") != std::string::npos);
  CHECK(list_error("n[99999999999999999999]").find("too large") != std::string::npos);
  CHECK(list_error("10.0.0.[250-260]").find("'10.0.0.256' is not an IPv4") != std::string::npos);
}

TEST_CASE("A host that is listed twice is one host") {
  CHECK(list_of("a:2,b:1,a:2") == Hosts{{"a", "", 4}, {"b", "", 1}});
  CHECK(list_of("a,A,a") == Hosts{{"a", "", 3}});
  CHECK(list_of("a:3,a") == Hosts{{"a", "", 4}});
  CHECK(list_of("[::1]:1,[0:0::1]:1") == Hosts{{"::1", "", 2}});
  CHECK(list_of("n[1-2]:1,n2:3") == Hosts{{"n1", "", 1}, {"n2", "", 4}});
  CHECK(list_error("x@a:1,y@a:1").find("two users, x and y") != std::string::npos);
  CHECK(list_error("a:1,y@a:1").find("the default one and y") != std::string::npos);
  CHECK(list_error("a:40000,a:40000").find("more than 65536 slots") != std::string::npos);
}

TEST_CASE("A rejected host list says where and what was expected") {
  CHECK(list_error("a:4 b:4") ==
        "-H: column 5: expected ',' between two hosts, found 'b'\n"
        "  a:4 b:4\n"
        "      ^");
  CHECK(list_error("") ==
        "-H: column 1: the list of hosts is empty; expected a host, such as node1:4\n"
        "  \n"
        "  ^");
  CHECK(list_error("a:4,").find("column 5: expected a host") != std::string::npos);
  CHECK(list_error("a:4,,b").find("column 5: expected a host") != std::string::npos);
  CHECK(list_error("a:").find("column 3: expected the number of slots") != std::string::npos);
  CHECK(list_error("a:-1").find("column 3: expected the number of slots in digits, found '-'") !=
        std::string::npos);
  CHECK(list_error("a:4x").find("column 4") != std::string::npos);
  CHECK(list_error("a:99999999999").find("at most 65536") != std::string::npos);
  CHECK(list_error("a:2:3").find("column 4") != std::string::npos);
  CHECK(list_error(":4").find("expected a host name") != std::string::npos);
  CHECK(list_error("@a").find("expected a user name") != std::string::npos);
  CHECK(list_error("u@").find("expected a host name") != std::string::npos);
  CHECK(list_error("-oProxyCommand=x").find("cannot begin with '-'") == std::string::npos);
  CHECK(list_error("-evil").find("cannot begin with '-'") != std::string::npos);
  CHECK(list_error("-u@a").find("'-' in a user name") != std::string::npos);
  CHECK(list_error("a=4").find("write ':' before the slots") != std::string::npos);
  CHECK(list_error("n[1-9/4]")
            .find("column 6: a range has no step; write each number, such as n[1,5,9]") !=
        std::string::npos);
  CHECK(list_error("/etc/hosts").find("--hostfile") != std::string::npos);
  CHECK(list_error(std::string("a\x01:1")).find("byte 0x01") != std::string::npos);
  CHECK(list_error("n\xc3\xa4:1,?").find("column 2: a host name cannot contain byte 0xc3") !=
        std::string::npos);
  CHECK(list_error("a,10.0.0.999").find("column 3: '10.0.0.999'") != std::string::npos);
  CHECK(list_error(std::string(300, 'a')).find("too long") != std::string::npos);
}

TEST_CASE("A hostfile takes every layout that people have") {
  CHECK(file_of("\xEF\xBB\xBF# a cluster\r\n\r\na slots=4 max_slots=8\r\n"
                "\tb\tslots = 2   # two\n"
                "u@c:3\n"
                "[fe80::1]:2\n"
                "n[1-2] slots=1 max-slots=1\n"
                "bare") == Hosts{{"a", "", 4},
                                 {"b", "", 2},
                                 {"c", "u", 3},
                                 {"fe80::1", "", 2},
                                 {"n1", "", 1},
                                 {"n2", "", 1},
                                 {"bare", "", std::nullopt}});
  CHECK(file_of("a\na\nb\na#x\n") == Hosts{{"a", "", 3}, {"b", "", std::nullopt}});
}

TEST_CASE("Hostfiles of other launchers and batch systems") {
  const auto hosts_of = [](std::string_view text) {
    const auto hosts = parse_hostfile(text, "f");
    REQUIRE(hosts);
    return format_host_list(*hosts);
  };
  CHECK(hosts_of("a slots=4 max_slots=8\nb slots=2\n") == "a:4,b:2");  // Open MPI, DeepSpeed
  CHECK(hosts_of("a:4\nb:2\n") == "a:4,b:2");                          // Hydra
  CHECK(hosts_of("a\na\nb\na\n") == "a:3,b");                          // PBS, LSF
  // Grid Engine, which lists a host once per queue
  CHECK(hosts_of("a 4 all.q@a UNDEFINED\nb\t2 all.q@b <NULL>\na 1 gpu.q@a 0,0:0,1\n") == "a:5,b:2");
  CHECK(hosts_of("a 4\nb 2 all.q@b # two\n") == "a:4,b:2");
  const auto error_of = [](std::string_view text) {
    const auto hosts = parse_hostfile(text, "f");
    REQUIRE_FALSE(hosts);
    return hosts.error().message;
  };
  CHECK(error_of("a 4 all.q@a UNDEFINED more\n").find("f:1:23: expected the end of the line") == 0);
  CHECK(error_of("a 4 max_slots=8\n").find("f:1:5: expected slots=N") == 0);
  CHECK(error_of("a:2 4\n").find("f:1:5: expected slots=N") == 0);
  CHECK(error_of("b\na 4x\n").find("f:2:4: expected the number of slots in digits") == 0);
}

TEST_CASE("The spellings of Open MPI and Hydra are taken") {
  CHECK(file_of("a count=4 slots_max=8\nb cpu=2 slots-max=2\n") ==
        Hosts{{"a", "", 4}, {"b", "", 2}});
  CHECK(file_of("a slots=1 username=bob\nb:2 user=eve\nc user_name = al\nd user-name=me@x\n") ==
        Hosts{{"a", "bob", 1},
              {"b", "eve", 2},
              {"c", "al", std::nullopt},
              {"d", "me@x", std::nullopt}});
  CHECK(file_error("a slots=2 count=2\n").find("appear twice") != std::string::npos);
  CHECK(file_error("a count=4 slots_max=2\n").find("less than the slots") != std::string::npos);
  CHECK(file_error("b@a user=c\n").find("the user of this host appears twice") !=
        std::string::npos);
  CHECK(file_error("a user=\n").find("expected the name") != std::string::npos);
  CHECK(file_error("a user=-o\n").find("'-' in a user name") != std::string::npos);
}

TEST_CASE("A rejected hostfile names file, line and column") {
  CHECK(file_error("a slots=2\n\n\tb slots=x\n") ==
        "hosts:3:10: expected the number of slots in digits, found 'x'\n"
        "   b slots=x\n"
        "           ^");
  CHECK(file_error("") == "hosts: this file lists no host; expected lines such as 'node1 slots=4'");
  CHECK(file_error("# only\n").find("this file lists no host") != std::string::npos);
  CHECK(file_error("a b\n").find("hosts:1:3: expected slots=N") != std::string::npos);
  CHECK(file_error("a,b\n").find("hosts:1:2: expected one host per line") != std::string::npos);
  CHECK(file_error("a gpus=2\n").find("hosts:1:3: expected slots=N") != std::string::npos);
  CHECK(file_error("a ansible_user=bob\n").find("user@host") != std::string::npos);
  CHECK(file_error("a 4,5\n").find("LSB_DJOB_HOSTFILE") != std::string::npos);
  CHECK(file_error("a 4,5 # c\n").find("LSB_DJOB_HOSTFILE") != std::string::npos);
  CHECK(file_error("rank 0=a slot=0\n").find("--rankfile") != std::string::npos);
  CHECK(file_error("[gpu]\na\n").find("has no sections") != std::string::npos);
  CHECK(file_error("a/0*2+b/1\n").find("exec_host") != std::string::npos);
  CHECK(file_error("a/b\n").find("one host per line") != std::string::npos);
  CHECK(file_error("a:2 ifname=ib0\n").find("--network-interfaces") != std::string::npos);
  CHECK(file_error("a cpus=2\n").find("the number of ranks is slots=N") != std::string::npos);
  CHECK(file_error("a slots\n").find("expected slots=N") != std::string::npos);
  CHECK(file_error("a slots=\n").find("hosts:1:9: expected the number") != std::string::npos);
  CHECK(file_error("a slots=2 slots=2\n").find("appear twice") != std::string::npos);
  CHECK(file_error("a:2 slots=2\n").find("appear twice") != std::string::npos);
  CHECK(file_error("a slots=4 max_slots=2\n").find("hosts:1:21: max_slots") != std::string::npos);
  CHECK(file_error("\xFF\xFE"
                   "a")
            .find("UTF-16") != std::string::npos);
  CHECK(file_error("u@a\nv@a\n").find("hosts:2:1: host a is listed for two users") !=
        std::string::npos);
  CHECK(file_error("a:99999999999 x").find("at most 65536") != std::string::npos);
}

TEST_CASE("What could steer a terminal is not shown, and the caret stays in place") {
  // CSI as one byte and as a character, a mark of writing direction, and a byte that is no UTF-8.
  const std::string message = list_error(
      "a,\x9b"
      "31m\xc2\x9b\xe2\x80\xae\xff:2");
  CHECK(message.substr(message.find('\n')) == "\n  a,?31m???:2\n    ^");
  const std::string later = list_error("\xe2\x80\xae");
  CHECK(later.substr(later.find('\n')) == "\n  ?\n  ^");
}

TEST_CASE("A long line is cut around the caret") {
  std::string text = "a:1";
  for (int i = 0; i < 100; ++i) text += ",host" + std::to_string(i) + ":1";
  text += ",bad!:1,";
  for (int i = 0; i < 100; ++i) text += "z" + std::to_string(i) + ":1,";
  const std::string message = list_error(text);
  const auto caret = message.rfind('^') - message.rfind('\n') - 1;
  const auto first = message.find('\n') + 1;
  CHECK(message[first + caret] == '!');
  CHECK(message.size() < 300);
}

TEST_CASE("A hostfile of 100,000 lines is read") {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "node" + std::to_string(i) + " slots=8\n";
  CHECK(file_of(text).size() == 100'000);
}

TEST_CASE("What is printed is read back") {
  std::mt19937 random(20260101);
  const auto below = [&random](std::size_t n) { return random() % n; };
  const std::string letters = "abcXYZ019-_.";
  for (int round = 0; round < 2000; ++round) {
    Hosts hosts;
    std::set<std::string> seen;
    const std::size_t count = 1 + below(6);
    for (std::size_t i = 0; i < count; ++i) {
      Host host;
      host.name = std::string(1, "hnq7"[below(4)]);
      for (std::size_t k = below(8); k > 0; --k) host.name += letters[below(letters.size())];
      host.name += "h" + std::to_string(i);
      if (below(5) == 0) host.name = "fe80::" + std::to_string(i + 1);
      if (below(3) == 0) host.user = "u" + std::string(1, letters[below(letters.size())]);
      if (below(3) == 0) host.port = static_cast<int>(1 + below(65'535));
      if (below(3) != 0) host.slots = static_cast<int>(below(70'000) % (kMaxSlotsPerHost + 1));
      hosts.push_back(host);
    }
    INFO(format_host_list(hosts));
    CHECK(list_of(format_host_list(hosts)) == hosts);
    std::string file;
    for (const Host& host : hosts) file += format_host(host) + "\r\n";
    CHECK(file_of(file) == hosts);
  }
}

TEST_CASE("What names hosts without measure is refused before it costs time") {
  std::string ranges, mentions;
  for (int i = 0; i < 17; ++i) ranges += "a[1]";
  CHECK(list_of(ranges.substr(4)).front().name == "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1");
  CHECK(list_error(ranges).find("too many ranges in one name") != std::string::npos);
  for (int i = 0; i < 11; ++i) mentions += "a[1-99999],";
  CHECK(list_error(mentions + "a").find("hosts are listed more than 1000000 times") !=
        std::string::npos);
}

TEST_CASE("Any bytes give hosts or a message") {
  std::mt19937 random(7);
  const std::string bytes = "ab1:,@[]-. \t\r\n#=slots\xEF\xBB\xBF\x00~"s;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (std::size_t k = random() % 24; k > 0; --k) text += bytes[random() % bytes.size()];
    const auto list = parse_host_list(text, "-H");
    if (list) {
      CHECK(parse_host_list(format_host_list(*list), "-H").value() == *list);
    } else {
      CHECK(list.error().message.find('^') != std::string::npos);
    }
    const auto file = parse_hostfile(text, "f");
    if (!file) CHECK(file.error().message.substr(0, 2) == "f:");
  }
}

}  // namespace
}  // namespace hora::launcher
