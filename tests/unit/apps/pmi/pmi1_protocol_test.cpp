// SPDX-License-Identifier: Apache-2.0
#include "apps/pmi/pmi1_protocol.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::pmi;

namespace {

// Two hosts, this one has ranks 0 and 1.
const PmiJob kJob{"id", {{"a", {0, 1}}, {"b", {2}}}, 0, "", {}};

}  // namespace

TEST_CASE("PMI-1: what a rank asks at its start") {
  Pmi1Protocol protocol(kJob);
  CHECK(protocol.handle(0, "cmd=init pmi_version=1 pmi_subversion=1") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(protocol.handle(0, "cmd=init pmi_version=2 pmi_subversion=0") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
  CHECK(protocol.handle(0, "cmd=get_maxes") ==
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
  CHECK(protocol.handle(0, "cmd=get_appnum") == "cmd=appnum appnum=0\n");
  CHECK(protocol.handle(1, "cmd=get_my_kvsname") == "cmd=my_kvsname kvsname=hora_id\n");
  CHECK(protocol.handle(1, "cmd=get_universe_size") == "cmd=universe_size size=3\n");
  CHECK(protocol.handle(1, "cmd=get kvsname=hora_id key=PMI_process_mapping") ==
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))\n");
  CHECK(protocol.handle(1, "cmd=finalize") == "cmd=finalize_ack\n");
  CHECK(protocol.handle(1, "cmd=abort exitcode=3") == "");
  CHECK(abort_code("cmd=abort exitcode=3") == 3);
  CHECK(abort_code("cmd=abort exitcode=0") == 1);
  CHECK(abort_code("cmd=abort") == 1);
  CHECK_FALSE(abort_code("cmd=finalize exitcode=3"));
  CHECK(protocol.handle(1, "cmd=publish_name service=x port=y") ==
        "cmd=publish_name_result rc=-1 msg=not_supported\n");
}

TEST_CASE("PMI-1: the number of a rank's program") {
  PmiJob job = kJob;
  job.next_programs = {1, 2};
  Pmi1Protocol protocol(job);
  CHECK(protocol.handle(0, "cmd=get_appnum") == "cmd=appnum appnum=0\n");
  CHECK(protocol.handle(1, "cmd=get_appnum") == "cmd=appnum appnum=1\n");
  CHECK(program_number(job, 2) == 2);
  CHECK(program_number(job, 9) == 2);
}

TEST_CASE("PMI-1: keys are seen here at once, elsewhere after a barrier of all") {
  Pmi1Protocol here(kJob);
  PmiJob other = kJob;
  other.own_host = 1;
  Pmi1Protocol there(other);
  const std::string put = "cmd=put kvsname=hora_id key=P0 value=a b=c#$";
  CHECK(here.handle(0, put) == "cmd=put_result rc=0 msg=success\n");
  CHECK(here.handle(1, put).find("rc=-1") != std::string::npos);
  const std::string get = "cmd=get kvsname=hora_id key=P0";
  CHECK(here.handle(1, get) == "cmd=get_result rc=0 msg=success value=a b=c#$\n");
  CHECK(there.handle(2, get) == "cmd=get_result rc=-1 msg=key_P0_not_found value=unknown\n");

  CHECK(here.handle(0, "cmd=barrier_in") == "");
  CHECK_FALSE(here.all_here());
  here.handle(1, "cmd=barrier_in");
  CHECK(here.all_here());
  there.handle(2, "cmd=barrier_in");
  CHECK(there.all_here());
  const std::string updates = here.take_updates() + there.take_updates();
  CHECK(here.take_updates() == "");
  for (Pmi1Protocol* protocol : {&here, &there}) {
    CHECK(protocol->add_updates(updates));
    CHECK(protocol->end_barrier() == "cmd=barrier_out\n");
    CHECK_FALSE(protocol->all_here());
  }
  CHECK(there.handle(2, get) == "cmd=get_result rc=0 msg=success value=a b=c#$\n");
  CHECK_FALSE(there.add_updates("no key\n"));
  CHECK_FALSE(there.add_updates("a=no end"));
}

TEST_CASE("PMI-1: spawning is refused when its command is complete") {
  Pmi1Protocol protocol(kJob);
  CHECK(protocol.handle(0, "mcmd=spawn") == "");
  CHECK(protocol.handle(0, "nprocs=2") == "");
  CHECK(protocol.handle(1, "cmd=get_appnum") == "cmd=appnum appnum=0\n");  // of another rank
  CHECK(protocol.handle(0, "endcmd") == "cmd=spawn_result rc=-1 msg=not_supported\n");
  CHECK(protocol.handle(0, "cmd=get_appnum") == "cmd=appnum appnum=0\n");
}

TEST_CASE("PMI-1: which ranks share a host") {
  CHECK(process_mapping({{"a", {0, 1, 2, 3}}, {"b", {4, 5, 6, 7}}}) == "(vector,(0,2,4))");
  CHECK(process_mapping({{"a", {0, 1}}, {"b", {2}}, {"c", {3}}}) == "(vector,(0,1,2),(1,2,1))");
  CHECK(process_mapping({{"a", {0, 2}}, {"b", {1, 3}}}) == "(vector,(0,2,1),(0,2,1))");
  CHECK(process_mapping({{"a", {0}}}) == "(vector,(0,1,1))");
}
