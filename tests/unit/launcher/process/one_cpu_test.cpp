// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/one_cpu.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "launcher/process/spawn.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

bool has_several_cpus() {
  if (count_cpus(cpu_mask_of_this_thread()) > 1) return true;
  WARN("this machine has one CPU");
  return false;
}

std::size_t cpus_here() { return count_cpus(cpu_mask_of_this_thread()); }

TEST_CASE("a thread stays on the CPU where it is, and leaves it") {
  if (!has_several_cpus()) return;
  const CpuMask before = cpu_mask_of_this_thread();
  {
    const auto place = OneCpu::stay();
    REQUIRE(place);
    CHECK(place->everywhere() == before);
    CHECK(cpu_mask_of_this_thread() == mask_of({::sched_getcpu()}, before));
    {
      const OneCpu::Pause pause(place.get());
      CHECK(cpu_mask_of_this_thread() == before);
    }
    CHECK(cpus_here() == 1);
  }
  CHECK(cpu_mask_of_this_thread() == before);
}

TEST_CASE("a process that was started on one CPU stays there until it gets the CPUs to leave for") {
  if (!has_several_cpus()) return;
  const CpuMask before = cpu_mask_of_this_thread();
  const int here = ::sched_getcpu();
  CHECK(OneCpu::inherited(cpus_in(before)) == nullptr);  // it may run everywhere
  REQUIRE(set_cpu_mask(0, mask_of({here}, before)));
  CHECK(OneCpu::inherited({here}) == nullptr);
  CHECK(OneCpu::inherited({}) == nullptr);
  auto place = OneCpu::inherited(cpus_in(before));
  REQUIRE(place);
  CHECK(place->everywhere() == before);
  CHECK(cpus_here() == 1);
  place.reset();
  CHECK(cpu_mask_of_this_thread() == before);
}

TEST_CASE("a process that may use one CPU does not move") {
  const CpuMask before = cpu_mask_of_this_thread();
  const int here = ::sched_getcpu();
  REQUIRE(set_cpu_mask(0, mask_of({here}, before)));
  CHECK(OneCpu::stay() == nullptr);
  REQUIRE(set_cpu_mask(0, before));
}

TEST_CASE("threads that began meanwhile leave, too") {
  if (!has_several_cpus()) return;
  auto place = OneCpu::stay();
  REQUIRE(place);
  std::promise<void> begun, left;
  std::size_t first = 0, then = 0;
  std::thread thread([&] {
    first = cpus_here();
    begun.set_value();
    left.get_future().wait();
    then = cpus_here();
  });
  begun.get_future().wait();
  const std::size_t everywhere = count_cpus(place->everywhere());
  place->leave();
  left.set_value();
  thread.join();
  CHECK(first == 1);
  CHECK(then == everywhere);
  // Left once: what is set afterwards is not undone.
  const CpuMask mask = mask_of({::sched_getcpu()}, place->everywhere());
  REQUIRE(set_cpu_mask(0, mask));
  {
    const OneCpu::Pause pause(place.get());
    CHECK(cpus_here() == 1);
  }
  const CpuMask all = place->everywhere();
  place.reset();
  CHECK(cpus_here() == 1);
  REQUIRE(set_cpu_mask(0, all));
}

TEST_CASE("a child may run everywhere") {
  if (!has_several_cpus()) return;
  const auto place = OneCpu::stay();
  REQUIRE(place);
  const auto allowed = [&place](bool everywhere) {
    // A shell that counts what the kernel says of it.
    char shell[] = "/bin/sh", option[] = "-c";
    char script[] =
        "while read -r name value; do [ \"$name\" = Cpus_allowed_list: ] || continue; "
        "case $value in *[,-]*) exit 2;; *) exit 1;; esac; done </proc/self/status";
    char* argv[] = {shell, option, script, nullptr};
    char* envp[] = {nullptr};
    SpawnRequest request;
    request.program = shell;
    request.argv = argv;
    request.envp = envp;
    if (everywhere) request.cpus = &place->everywhere();
    const SpawnOutcome outcome = spawn(request);
    REQUIRE(outcome.ok());
    int status = 0;
    REQUIRE(::waitpid(outcome.pid, &status, 0) == outcome.pid);
    return WEXITSTATUS(status);
  };
  CHECK(allowed(true) == 2);
  CHECK(allowed(false) == 1);
  CHECK(cpus_here() == 1);
}

}  // namespace
}  // namespace hora::launcher
