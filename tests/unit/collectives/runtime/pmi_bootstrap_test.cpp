// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/pmi_bootstrap.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

// A launcher that answers from a list, and the requests it received.
class Launcher {
 public:
  explicit Launcher(std::vector<std::string> answers) {
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()) == 0);
    thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
  }
  ~Launcher() {
    shutdown(ends_[0], SHUT_RDWR);
    thread_.join();
    for (int end : ends_) close(end);
  }
  int fd() const { return ends_[0]; }
  const std::vector<std::string>& reported() const { return reported_; }

 private:
  void serve(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      std::string line;
      char c = 0;
      while (read(ends_[1], &c, 1) == 1 && c != '\n') line += c;
      reported_.push_back(line);
      // In two writes: a line may come in pieces.
      const std::size_t half = answer.size() / 2;
      if (write(ends_[1], answer.data(), half) < 0) return;
      if (write(ends_[1], answer.data() + half, answer.size() - half) < 0) return;
    }
    if (answers.back().back() != '\n') shutdown(ends_[1], SHUT_RDWR);
  }

  std::array<int, 2> ends_{};
  std::vector<std::string> reported_;
  std::thread thread_;
};

Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

}  // namespace

TEST_CASE("PMI-1: lines are words of name=value") {
  const auto fields = parse_pmi_line("cmd=get_result rc=0 msg=success value=a=b=");
  CHECK(fields.at("cmd") == "get_result");
  CHECK(fields.at("value") == "a=b=");
  CHECK(fields.size() == 4);
  CHECK(parse_pmi_line("").empty());
  CHECK(parse_pmi_line("  odd  cmd=x ").size() == 1);
}

TEST_CASE("PMI-1: what a process says, and what it reads") {
  Launcher launcher({"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
                     "cmd=my_kvsname kvsname=kvs_7\n", "cmd=put_result rc=0 msg=success\n",
                     "cmd=barrier_out rc=0\n", "cmd=get_result rc=0 msg=success value=.ff\n",
                     "cmd=finalize_ack rc=0\n"});
  PmiClient client(launcher.fd());
  REQUIRE(client.begin(soon()));
  REQUIRE(client.put("a-0", ".00", soon()));
  REQUIRE(client.barrier(soon()));
  CHECK(*client.get("a-1", soon()) == ".ff");
  client.finish();
  CHECK(launcher.reported() ==
        std::vector<std::string>{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_my_kvsname",
                                 "cmd=put kvsname=kvs_7 key=a-0 value=.00", "cmd=barrier_in",
                                 "cmd=get kvsname=kvs_7 key=a-1", "cmd=finalize"});
}

TEST_CASE("PMI-1: refusals, other answers, silence and the launcher's end are errors") {
  Launcher refusing({"cmd=response_to_init rc=-1\n"});
  const Status refused = PmiClient(refusing.fd()).begin(soon());
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Contains("cmd=response_to_init rc=-1"));

  Launcher ending({"cmd=response_to_init"});
  const Status ended = PmiClient(ending.fd()).begin(soon());
  REQUIRE_FALSE(ended);
  CHECK_THAT(ended.error().message, Contains("closed the connection"));

  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const Status silent = PmiClient(ends[0]).barrier(Clock::now() + std::chrono::milliseconds(20));
  REQUIRE_FALSE(silent);
  CHECK(silent.error().code == ErrorCode::kTimedOut);
  for (int end : ends) close(end);
}
