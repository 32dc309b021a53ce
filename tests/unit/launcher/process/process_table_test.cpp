// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/process_table.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/strays.h"
#include "rendezvous/os/files.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

// Each process of it forks one and ends, in a session of its own. It ends by itself when a test
// that fails leaves it.
[[noreturn]] void chain() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    ::setsid();
    if (::fork() > 0) ::_exit(0);
  }
  ::_exit(0);
}

void begin_chain() {
  const pid_t first = ::fork();
  REQUIRE(first >= 0);
  if (first == 0) chain();
}

// Killed and reaped at the end, unless a test has done both.
struct Child {
  pid_t pid;
  ~Child() {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

bool eventually(const std::function<bool()>& happens) {
  for (int i = 0; i < 20'000; ++i) {
    if (happens()) return true;
    ::usleep(1'000);
  }
  return false;
}

// Orphans come to this process, and their ends wait to be looked at.
class ChildrenBlocked {
 public:
  ChildrenBlocked() {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, &before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  }
  ~ChildrenBlocked() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

}  // namespace

TEST_CASE("a line of /proc/PID/stat") {
  const auto entry = parse_process_stat(
      "123 (a b) c) (d) S 45 67 89 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 0 0 1 2 3\n");
  REQUIRE(entry.has_value());
  CHECK(*entry == ProcessEntry{123, 45, 67, 89, 'S', 987654, 3});
}

TEST_CASE("text that is not a line of /proc/PID/stat is refused") {
  for (const char* text : {"", "1", "1 (x", "1 (x)", "1 (x) ", "x (x) S 1 2 3", "1 (x) S 1 2 3",
                           "1 (x) S 1 b 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"}) {
    INFO(text);
    CHECK(!parse_process_stat(text).has_value());
  }
}

TEST_CASE("a mask of /proc/PID/status") {
  const std::string status =
      "Name:\ta SigCgt:\t8\nSigBlk:\t0000000000000004\nSigCgt:\t8000000000000000\n";
  REQUIRE(has_signal(status, "SigBlk", 3));
  REQUIRE_FALSE(has_signal(status, "SigBlk", 2));
  REQUIRE(has_signal(status, "SigCgt", 64));
  REQUIRE_FALSE(has_signal(status, "SigCgt", 4));
  REQUIRE_FALSE(has_signal(status, "SigIgn", 3));
  REQUIRE_FALSE(has_signal("", "SigBlk", 3));
}

TEST_CASE("whether a process handles a signal") {
  const int signal = SIGRTMAX - 3;
  REQUIRE_FALSE(handles_signal(::getpid(), signal));
  const auto before = ::signal(signal, [](int) {});
  REQUIRE(handles_signal(::getpid(), signal));
  ::signal(signal, SIG_IGN);
  REQUIRE_FALSE(handles_signal(::getpid(), signal));
  ::signal(signal, before);
}

TEST_CASE("this process is in the table") {
  const auto self = read_process(::getpid());
  REQUIRE(self.has_value());
  CHECK(self->parent == ::getppid());
  CHECK(self->group == ::getpgrp());
  const auto all = list_processes().value();
  CHECK(std::any_of(all.begin(), all.end(), [&](const ProcessEntry& entry) {
    return entry.pid == self->pid && entry.started_ticks == self->started_ticks;
  }));
}

TEST_CASE("what a process has used is what the kernel says of it elsewhere") {
  const auto cpu_ms = [] {
    long ms = 0;
    for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage usage{};
      ::getrusage(whose, &usage);
      for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
        ms += time.tv_sec * 1000 + time.tv_usec / 1000;
      }
    }
    return ms;
  };
  constexpr long kRoundedOff = 4 * 10;  // a tick in each of four numbers
  while (cpu_ms() < 3 * kRoundedOff) {
  }
  const long before = cpu_ms();
  const auto usage = read_usage(::getpid());
  REQUIRE(usage);
  CHECK(usage->cpu_ms >= before - kRoundedOff);
  CHECK(usage->cpu_ms <= cpu_ms() + kRoundedOff);
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number: those in memory
  const std::int64_t bytes = pages * ::sysconf(_SC_PAGESIZE);
  CHECK(usage->rss_bytes > bytes / 2);
  CHECK(usage->rss_bytes < bytes * 2);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(read_usage(child));
}

TEST_CASE("when a larger number is a younger process") {
  CHECK(numbers_ascend_since(1'000, 0.1, 1'000, 32'768));
  CHECK(numbers_ascend_since(1'000, 0.1, 32'000, 32'768));
  CHECK_FALSE(numbers_ascend_since(1'000, 0.1, 999, 32'768));    // it has come round
  CHECK_FALSE(numbers_ascend_since(1'000, 0.2, 1'500, 32'768));  // and may have come round
  CHECK(numbers_ascend_since(1'000, 20, 1'500, 4'194'304));
  CHECK_FALSE(numbers_ascend_since(1'000, 21, 1'500, 4'194'304));
  CHECK_FALSE(numbers_ascend_since(1'000, -1, 1'500, 32'768));  // clocks that do not agree
}

TEST_CASE("the processes since one of them") {
  const auto has = [](const std::vector<ProcessEntry>& all, pid_t pid) {
    return std::any_of(all.begin(), all.end(), [pid](const auto& each) { return each.pid == pid; });
  };
  const auto self = read_process(::getpid());
  REQUIRE(self);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto since = list_processes_since(*self);
  ProcessEntry long_ago = *self;
  long_ago.started_ticks = 0;
  const auto all = list_processes_since(long_ago);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE(since);
  CHECK(has(*since, ::getpid()));
  CHECK(has(*since, child));
  REQUIRE(all);
  CHECK(has(*all, 1));
  CHECK(has(*all, child));
}

// In a new process, which few have followed: then each number is asked for.
TEST_CASE("a thread is not a process") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto self = read_process(::getpid());
    std::promise<pid_t> number;
    std::promise<void> end;
    std::thread other([&] {
      number.set_value(static_cast<pid_t>(::syscall(SYS_gettid)));
      end.get_future().wait();
    });
    const pid_t thread = number.get_future().get();
    const auto since = self ? list_processes_since(*self) : std::nullopt;
    end.set_value();
    other.join();
    const bool right =
        since && std::none_of(since->begin(), since->end(),
                              [thread](const auto& each) { return each.pid == thread; });
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("without descriptors the table is unknown, not empty") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const bool unknown = !list_processes() && !list_threads(::getpid()) && !find_strays({});
    ::_exit(unknown ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("one descriptor is enough to signal a process") {
  const pid_t victim = ::fork();
  REQUIRE(victim >= 0);
  if (victim == 0) {
    while (true) ::pause();
  }
  const auto entry = read_process(victim);
  REQUIRE(entry.has_value());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int lowest =
        ::fcntl(0, F_DUPFD_CLOEXEC, 0);  // the only number that is free below the limit
    ::close(lowest);
    const rlimit one{static_cast<rlim_t>(lowest) + 1, static_cast<rlim_t>(lowest) + 1};
    ::setrlimit(RLIMIT_NOFILE, &one);
    ::_exit(signal_process(*entry, SIGKILL) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ::kill(victim, SIGKILL);
  REQUIRE(::waitpid(victim, &status, 0) == victim);
}

TEST_CASE("who is at work, stopped and gone") {
  CHECK(pulse_of(::getpid()).standing == Standing::kAtWork);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    while (true) ::pause();
  }
  CHECK(pulse_of(child).standing == Standing::kAtWork);
  int status = 0;
  ::kill(child, SIGSTOP);
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK(pulse_of(child).standing == Standing::kStopped);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(pulse_of(child).standing == Standing::kGone);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(pulse_of(child).standing == Standing::kGone);
}

TEST_CASE("a process that exists is at work where /proc cannot say") {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const pid_t gone = ::fork();
    if (gone == 0) ::_exit(0);
    ::waitpid(gone, nullptr, 0);
    const bool right = pulse_of(parent).standing == Standing::kAtWork &&
                       pulse_of(gone).standing == Standing::kGone;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
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
  entry->started_ticks += 1;  // another process that has its number now
  CHECK(!signal_process(*entry, SIGKILL));
  entry->started_ticks -= 1;
  CHECK(signal_process(*entry, SIGKILL));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(!signal_process(*entry, SIGKILL));
  CHECK(!read_process(child).has_value());
}

TEST_CASE("a process whose main thread has ended lives on in its others") {
  const std::string mark = "HORA_TEST_MARK=threads-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    const char* argv[] = {HORA_TEST_MAIN_ENDS, nullptr};
    const char* envp[] = {mark.c_str(), nullptr};
    ::execve(HORA_TEST_MAIN_ENDS, const_cast<char**>(argv), const_cast<char**>(envp));
    ::_exit(1);
  }
  const Child guard{child};
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  REQUIRE(eventually([&] {
    const auto text = hora::os::read_file(stat);
    return text && text->find(") Z ") != std::string::npos;
  }));
  const auto entry = read_process(child);
  REQUIRE(entry.has_value());
  CHECK(entry->threads == 3);
  CHECK_FALSE(entry->is_zombie());
  CHECK(list_threads(child).value().size() == 3);
  CHECK(environment_has(child, mark));

  StrayScope scope;
  scope.root = *read_process(::getpid());
  const auto strays = find_strays(scope).value();
  REQUIRE(strays.size() == 1);
  CHECK(strays.front().pid == child);
  CHECK(kill_strays(scope, "", std::chrono::seconds(20)).none);
  CHECK(!read_process(child).has_value());
}

TEST_CASE("children, as the kernel lists them") {
  if (!list_children(::getpid())) return;  // this kernel does not
  CHECK(list_children(::getpid())->empty());
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  CHECK(list_children(::getpid()) == std::vector<pid_t>{child});
  CHECK(list_children(child)->empty());
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(!list_children(child).has_value());
}

TEST_CASE("processes that fork and end without a pause are killed or reported") {
  ChildrenBlocked blocked;
  const auto timeout = std::chrono::milliseconds(GENERATE(0, 20'000));
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) begin_chain();
    StrayScope scope;
    scope.root = *read_process(::getpid());
    const StraysLeft left = kill_strays(scope, "", timeout);
    CHECK(left.none == (::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD));
    if (timeout.count() > 0) CHECK(left.none);
    CHECK(kill_strays(scope, "", std::chrono::seconds(20)).none);
  }
}

TEST_CASE("a chase spares a process that another owner ends") {
  ChildrenBlocked blocked;
  const pid_t spared = ::fork();
  if (spared == 0) {
    if (::fork() == 0) {
      for (;;) ::pause();
    }
    for (;;) ::pause();
  }
  REQUIRE(eventually(
      [&] { return list_children(spared).value_or(std::vector<pid_t>{0}).size() == 1; }));
  StrayScope scope;
  scope.root = *read_process(::getpid());
  scope.spare = {spared};
  const Chase chase = chase_descendants(scope, std::chrono::seconds(20));
  CHECK(chase.caught_up);
  REQUIRE(chase.killed.size() == 1);  // its child
  CHECK(chase.killed.front().parent == spared);
  // A signal is sent before its process is gone; the next chase would count that one again.
  const pid_t killed = chase.killed.front().pid;
  REQUIRE(eventually([&] { return pulse_of(killed).standing == Standing::kGone; }));
  REQUIRE(read_process(spared).has_value());
  CHECK_FALSE(read_process(spared)->is_zombie());
  ::kill(spared, SIGKILL);
  REQUIRE(eventually([&] { return read_process(spared)->is_zombie(); }));
  CHECK(chase_descendants(scope, std::chrono::seconds(0)).killed.empty());
  CHECK(::waitpid(spared, nullptr, 0) == spared);  // not reaped by the chase
  CHECK(kill_strays(scope, "", std::chrono::seconds(20)).none);
}

TEST_CASE("a cgroup is killed on a kernel that cannot do it at once") {
  auto cgroup = JobCgroup::create("test-" + std::to_string(::getpid()));
  if (!cgroup) return;  // not allowed here
  ChildrenBlocked blocked;
  int began[2];
  REQUIRE(::pipe2(began, O_CLOEXEC) == 0);
  const pid_t first = ::fork();
  if (first == 0) {
    std::ofstream(cgroup->path() + "/cgroup.procs") << "0" << std::flush;
    (void)!::write(began[1], "x", 1);
    chain();
  }
  char byte = 0;
  REQUIRE(::read(began[0], &byte, 1) == 1);
  ::close(began[0]);
  ::close(began[1]);
  const auto populated = [&] {
    std::ifstream events(cgroup->path() + "/cgroup.events");
    const std::string text((std::istreambuf_iterator<char>(events)), {});
    return text.find("populated 1") != std::string::npos;
  };
  CHECK(populated());
  kill_frozen(cgroup->fd());
  CHECK(eventually([&] { return reap_all_children(); }));
  CHECK_FALSE(populated());
  cgroup->kill();
  cgroup->remove();
}

TEST_CASE("the usual place is that of the table of mounts") {
  const auto cgroup = JobCgroup::create("usual-" + std::to_string(::getpid()));
  if (!cgroup) return;  // none can be made here
  const std::string path = cgroup->path();
  const auto mounts = hora::os::read_file("/proc/self/mountinfo");
  const auto ours = hora::os::read_file("/proc/self/cgroup");
  remove_cgroup(path.c_str());
  REQUIRE((mounts && ours));
  CHECK(path.substr(0, path.rfind('/')) == own_cgroup_directory(*mounts, *ours));
}

TEST_CASE("the place of our own cgroup") {
  const std::string unified =
      "25 1 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
  CHECK(own_cgroup_directory(unified, "0::/user.slice/x.scope\n") ==
        "/sys/fs/cgroup/user.slice/x.scope");
  CHECK(own_cgroup_directory(unified, "0::/\n") == "/sys/fs/cgroup");
  // Hybrid: several version 1 hierarchies, with version 2.
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
