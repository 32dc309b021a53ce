// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_failures.h"

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("ssh: who was silent, and for how long") {
  CHECK(name_server_timeout("node3").message == "the name server does not answer for node3");
  CHECK(name_server_timeout("node3").code == failure::kResolve);
  CHECK(connect_timeout("10.0.0.3 and fd00::3", "5 s").message ==
        "no answer from 10.0.0.3 and fd00::3 within 5 s");
  CHECK(banner_timeout("10 s").message ==
        "it accepted the connection but sent no SSH banner within 10 s");
  CHECK(key_exchange_timeout("10 s", "10.0.0.3").advice.find("-s 1400 10.0.0.3)") !=
        std::string::npos);
  CHECK(login_timeout("15 s").message == "its SSH server did not complete the login within 15 s");
  for (const Failure& failure : {connect_timeout("", ""), banner_timeout(""),
                                 key_exchange_timeout("", ""), login_timeout("")}) {
    CHECK(failure.code == failure::kConnectTimeout);
    CHECK_FALSE(failure.advice.empty());
  }
  CHECK(shell_timeout().code == failure::kShellTimeout);
  CHECK(queue_timeout().code == failure::kStartTimeout);
}

TEST_CASE("ssh: a server that refuses is busy, a silent proxy may not work at all") {
  CHECK(busy_refusal(3, "", false).message ==
        "the server was too busy 3 times: it closed the connection at once");
  CHECK(busy_refusal(3, "Exceeded MaxStartups", true).message ==
        "the server was too busy 3 times: it said 'Exceeded MaxStartups'");
  CHECK(busy_refusal(3, "", false).code == failure::kSshBusy);
  const Failure penalty = busy_refusal(7, "Not allowed at this time", false);
  CHECK(penalty.message ==
        "the server refused the connection 7 times: it said 'Not allowed at this time'");
  CHECK(penalty.advice.find("PerSourcePenaltyExemptList") != std::string::npos);
  const Failure silent = busy_refusal(4, "", true);
  CHECK(silent.code == failure::kConnect);
  CHECK(silent.message == "the proxy command ended 4 times without output");
}
