// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/stack_text.h"

#include <fstream>
#include <sstream>

#include "launcher/agent/native_stacks.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

extern "C" __attribute__((noinline)) int hora_test_landmark(int value) { return value * 7 + 1; }

namespace {

// Where an address of ours lies in the file of this program.
std::uint64_t offset_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uint64_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;
    char dash = 0;
    std::string flags;
    fields >> std::hex >> begin >> dash >> end >> flags >> offset;
    if (wanted >= begin && wanted < end) return wanted - begin + offset;
  }
  FAIL("the address is in no mapping");
  return 0;
}

}  // namespace

TEST_CASE("elf: an address within a function has its name") {
  CHECK(hora_test_landmark(1) == 8);
  const std::uint64_t start = offset_of(reinterpret_cast<const void*>(&hora_test_landmark));
  const auto names = find_elf_symbols("/proc/self/exe", {start + 1, start, UINT64_MAX});
  CHECK(names.size() == 2);
  CHECK(names.at(start) == "hora_test_landmark");
  CHECK(names.at(start + 1) == "hora_test_landmark");
  CHECK(find_elf_symbols("/proc/self/maps", {1}).empty());
  CHECK(find_elf_symbols("/nowhere", {1}).empty());
}

TEST_CASE("elf: names for people") {
  CHECK(readable_symbol("_ZN4hora11collectives6Driver3runEv") == "hora::collectives::Driver::run");
  CHECK(readable_symbol("_ZN4hora12_GLOBAL__N_14waitEi") == "hora::wait");
  CHECK(readable_symbol("_ZZ4mainENKUlvE_clEv").find("operator()") != std::string::npos);
  CHECK(readable_symbol("epoll_wait") == "epoll_wait");
}

TEST_CASE("stacks: native frames above those of Python, equal threads once") {
  const std::string python =
      "Thread 0x00000000000000b2 (most recent call first):\n  File \"t.py\", line 9 in works\n\n"
      "Current thread 0x00000000000000a1 (most recent call first):\n  File \"t.py\", line 3 in "
      "waits\n";
  const NativeFrame wait{"pthread_cond_wait", "libc.so.6", 1};
  const NativeFrame eval{"_PyEval_EvalFrameDefault", "python3.11", 2};
  const NativeFrame own{"", "libx.so", 0x1a2b};
  const NativeFrame start{"start_thread", "libc.so.6", 3};
  CHECK(merge_stacks(python, {{0xa1, "python3", {own, wait, own, eval, wait}},
                              {1, "pool", {wait, start}},
                              {2, "pool", {wait, start}},
                              {3, "hora-runtime", {own, start}}}) ==
        "Thread python3 (most recent call first):\n"
        "  at libx.so+0x1a2b\n"
        "  at pthread_cond_wait (libc.so.6)\n"
        "  File \"t.py\", line 3 in waits\n"
        "2 threads pool (most recent call first):\n"
        "  at pthread_cond_wait (libc.so.6)\n"
        "Thread hora-runtime (most recent call first):\n"
        "  at libx.so+0x1a2b\n"
        "Thread 0x00000000000000b2 (most recent call first):\n"
        "  File \"t.py\", line 9 in works\n");
  CHECK(merge_stacks(python, {}) == python);
  CHECK(merge_stacks("garbage\nhread 0x", {{1, "t", {}}}).find("Thread t") == 0);
}
