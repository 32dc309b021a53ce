// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/read_access.h"

#include <errno.h>

#include "tests/support/catch.h"

using namespace hora::collectives::shm;

namespace {

bool says(const RefusedRead& refused, const std::string& word) {
  const std::string text = explain(refused);
  INFO(text);
  return text.find(word) != std::string::npos;
}

RefusedRead refused_with(int error) {
  RefusedRead refused;
  refused.error = error;
  refused.reader = {1, 1, 1000, 1};
  refused.target = refused.reader;
  return refused;
}

}  // namespace

TEST_CASE("a read that was refused: what forbids the call itself comes before who asks whom") {
  RefusedRead refused = refused_with(EPERM);
  refused.target = {2, 2, 2000, 0};
  refused.ptrace_scope = 1;
  refused.error_at_self = ENOSYS;
  CHECK(says(refused, "CONFIG_CROSS_MEMORY_ATTACH"));
  refused.error_at_self = EPERM;
  CHECK(says(refused, "seccomp filter forbids process_vm_readv (Operation not permitted)"));
  refused.error_at_self = 0;
  CHECK(says(refused, "another PID namespace"));
  refused.target.pid_namespace = 1;
  CHECK(says(refused, "another user namespace"));
  refused.target.user_namespace = 1;
  CHECK(says(refused, "of user 2000, this one of user 1000"));
  refused.target.user = 1000;
  CHECK(says(refused, "kernel.yama.ptrace_scope is 1"));
  refused.ptrace_scope = 0;
  CHECK(says(refused, "not dumpable"));
  refused.target.dumpable = 1;
  CHECK(says(refused, "security module"));
}

TEST_CASE("a read that was refused: what is not known is not blamed") {
  RefusedRead refused = refused_with(EPERM);
  refused.reader.user_namespace = refused.reader.pid_namespace = 0;
  refused.ptrace_scope = -1;
  CHECK(says(refused, "security module"));
  CHECK(says(refused_with(ESRCH), "another one here"));
  CHECK(says(refused_with(0), "another one here"));
  CHECK(says(refused_with(ENOMEM), "Cannot allocate memory"));
}

TEST_CASE("where nothing forbids it a process may read its parent") {
  // The parent may be somebody else's, or the machine forbid it: then there is a reason.
  const std::string obstacle = obstacle_here();
  INFO(obstacle);
  if (error_reading_self() == 0 && ptrace_scope() <= 0)
    CHECK(obstacle.find("seccomp") == obstacle.npos);
  if (error_reading_self() != 0) CHECK_FALSE(obstacle.empty());
}
