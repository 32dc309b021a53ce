// SPDX-License-Identifier: Apache-2.0
// What the NVIDIA driver writes into the kernel's log, and how the log is read.

#include "launcher/agent/kernel_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <random>

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("the forms of an Xid message, by age of the driver") {
  const struct {
    const char* line;
    XidMessage expected;
  } kRows[] = {
      {"NVRM: Xid (0000:01:00): 13, 0005 00000000 0000502d",
       {"0000:01:00", 13, 0, "", "0005 00000000 0000502d"}},
      {"NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.",
       {"0000:2b:00", 79, 0, "", "GPU has fallen off the bus."}},
      {"NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
       {"0000:10:1c", 63, 1896, "", "Row Remapper: New row marked for remapping"}},
      {"NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000.",
       {"0000:3b:00", 31, 4711, "python3", "Ch 00000008, intr 10000000."}},
      {"NVRM: Xid (PCI:0000:3b:00): 45, pid='<unknown>', name=<unknown>, Ch 00000008",
       {"0000:3b:00", 45, 0, "", "Ch 00000008"}},
      {"NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7, name=x, Contained",
       {"0000:3b:00 GPU-I:05", 94, 7, "x", "Contained"}},
      {"NVRM: Xid (PCI:0000:3b:00): 154", {"0000:3b:00", 154, 0, "", ""}},
  };
  for (const auto& row : kRows) {
    INFO(row.line);
    const auto message = parse_xid(row.line);
    REQUIRE(message);
    CHECK(*message == row.expected);
  }
}

TEST_CASE("lines of others are none") {
  for (const char* line :
       {"", "NVRM: Xid", "NVRM: Xid (", "NVRM: Xid (): 3", "NVRM: Xid (PCI:0000:3b:00)",
        "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:3b:00): x",
        "NVRM: Xid (PCI:0000:3b:00) 79", "NVRM: Xid (PCI:0000:3b:00): -1, x",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, x", "NVRM: Xid (no address): 79, x",
        "NVRM: GPU at PCI:0000:2b:00: GPU-0b11d014", "usb 1-1: new high-speed USB device"}) {
    INFO(line);
    CHECK_FALSE(parse_xid(line));
  }
}

TEST_CASE("damaged lines do no harm") {
  const std::string whole =
      "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000.";
  std::mt19937 random(17);
  int found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string line = whole.substr(0, random() % (whole.size() + 1));
    for (unsigned changes = random() % 4; changes > 0 && !line.empty(); --changes) {
      line[random() % line.size()] = static_cast<char>(random());
    }
    const auto message = parse_xid(line);
    if (!message) continue;
    ++found;
    CHECK((message->code >= 0 && message->pid >= 0 && !message->device.empty()));
    CHECK(message->text.size() <= 300);
  }
  CHECK(found > 1'000);  // it did look at lines that are nearly whole
  CHECK(parse_xid("NVRM: Xid (PCI:0000:3b:00): 31, " + std::string(10'000, 'x'))->text.size() ==
        300);
}

TEST_CASE("a fault of a GPU that the driver does not list here is another's") {
  const auto message = parse_xid("NVRM: Xid (PCI:0000:3b:00): 79, x");
  REQUIRE(message);
  CHECK(is_of_gpus(*message, {}));
  CHECK(is_of_gpus(*message, {"0000:18:00.0", "0000:3b:00.0"}));
  CHECK_FALSE(is_of_gpus(*message, {"0000:18:00.0"}));
  CHECK(is_of_gpus(*parse_xid("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, x"), {"0000:3b:00.0"}));
}

TEST_CASE("the kernel's messages from now on") {
  const int kernel = ::open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
  if (kernel < 0) {
    WARN("this user may not write into the kernel's log");
    return;
  }
  const auto say = [kernel](const std::string& text) {
    REQUIRE(::write(kernel, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  const std::string word = "hora-test-" + std::to_string(::getpid());
  say(word + " before\n");
  KernelLog log;
  if (!log.fd().valid()) {
    WARN("this user may not read the kernel's log");
    return;
  }
  say(word + " first\n");
  say(word + " second; with a semicolon\n");
  std::vector<std::string> seen;
  const auto take = [&](std::string_view line) {
    if (line.find(word) != line.npos) seen.emplace_back(line);
  };
  pollfd watched{log.fd().get(), POLLIN, 0};
  REQUIRE(::poll(&watched, 1, 10'000) == 1);
  CHECK(log.read_new(take));
  CHECK(seen == std::vector<std::string>{word + " first", word + " second; with a semicolon"});
  CHECK(log.read_new(take));
  CHECK(seen.size() == 2);
  ::close(kernel);
}
