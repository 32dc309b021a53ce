#include "launcher/process/process_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/strays.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("a line of /proc/PID/stat") {
  const auto entry = parse_process_stat(
      "123 (a b) c) (d) S 45 67 89 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0 1 2 3\n");
  REQUIRE(entry.has_value());
  CHECK(*entry == ProcessEntry{123, 45, 67, 89, 'S', 987654});
}

TEST_CASE("what is no line of /proc/PID/stat") {
  for (const char* text : {"", "1", "1 (x", "1 (x)", "1 (x) ", "x (x) S 1 2 3", "1 (x) S 1 2 3",
                           "1 (x) S 1 b 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"}) {
    INFO(text);
    CHECK(!parse_process_stat(text).has_value());
  }
}

TEST_CASE("this process is in the table") {
  const auto self = read_process(::getpid());
  REQUIRE(self.has_value());
  CHECK(self->parent == ::getppid());
  CHECK(self->group == ::getpgrp());
  const auto all = list_processes();
  CHECK(std::any_of(all.begin(), all.end(), [&](const ProcessEntry& entry) {
    return entry.pid == self->pid && entry.started_ticks == self->started_ticks;
  }));
}

TEST_CASE("descendants, in a table that was read while processes moved") {
  const auto process = [](pid_t pid, pid_t parent) {
    ProcessEntry entry;
    entry.pid = pid;
    entry.parent = parent;
    return entry;
  };
  const std::vector<ProcessEntry> all{process(1, 0),   process(2, 1), process(3, 2),
                                      process(4, 3),   process(9, 1), process(20, 21),
                                      process(21, 20), process(5, 2), process(30, 30)};
  std::vector<pid_t> found;
  for (const ProcessEntry& entry : descendants_of(2, all)) found.push_back(entry.pid);
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<pid_t>{3, 4, 5});
  CHECK(descendants_of(20, all).size() == 2);  // a circle ends
  CHECK(descendants_of(77, all).empty());
}

TEST_CASE("a process is known by its environment") {
  const std::string mark = "HORA_TEST_MARK=" + std::to_string(::getpid());
  // Longer than one read, and the mark at its end.
  const std::string filler = "FILLER=" + std::string(100'000, 'x');
  const pid_t child = ::fork();
  if (child == 0) {
    const char* argv[] = {"sleep", "1000", nullptr};
    const char* envp[] = {filler.c_str(), mark.c_str(), nullptr};
    ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(envp));
    ::_exit(1);
  }
  bool seen = false;
  for (int i = 0; i < 5'000 && !seen; ++i) {
    seen = environment_has(child, mark);
    if (!seen) ::usleep(1'000);
  }
  CHECK(seen);
  CHECK(!environment_has(child, mark.substr(0, mark.size() - 1)));
  CHECK(!environment_has(child, mark.substr(1)));
  CHECK(!environment_has(::getpid(), mark));

  auto entry = read_process(child);
  REQUIRE(entry.has_value());
  entry->started_ticks += 1;  // somebody else who has its number now
  CHECK(!signal_process(*entry, SIGKILL));
  entry->started_ticks -= 1;
  CHECK(signal_process(*entry, SIGKILL));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(!signal_process(*entry, SIGKILL));
  CHECK(!read_process(child).has_value());
}

TEST_CASE("the place of our own cgroup") {
  const std::string unified =
      "25 1 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
  CHECK(own_cgroup_directory(unified, "0::/user.slice/x.scope\n") ==
        "/sys/fs/cgroup/user.slice/x.scope");
  CHECK(own_cgroup_directory(unified, "0::/\n") == "/sys/fs/cgroup");
  // Hybrid: several version 1 hierarchies, version 2 beside them.
  const std::string hybrid =
      "30 1 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "31 1 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  CHECK(own_cgroup_directory(hybrid, "4:memory:/a\n0::/b\n") == "/sys/fs/cgroup/unified/b");
  // A container sees the part below its own root.
  const std::string container = "31 1 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  CHECK(own_cgroup_directory(container, "0::/docker/abc/x\n") == "/sys/fs/cgroup/x");
  CHECK(own_cgroup_directory(container, "0::/\n") == "/sys/fs/cgroup");
  // A mount point with a blank in it.
  CHECK(own_cgroup_directory("31 1 0:26 / /a\\040b rw - cgroup2 c rw\n", "0::/x\n") == "/a b/x");
  CHECK(own_cgroup_directory(hybrid, "4:memory:/a\n").empty());
  CHECK(own_cgroup_directory("30 1 0:25 / /x rw - cgroup cgroup rw\n", "0::/a\n").empty());
  CHECK(own_cgroup_directory(unified, "0::/../outside\n").empty());
  CHECK(own_cgroup_directory("", "").empty());
}
