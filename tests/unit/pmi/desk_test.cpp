#include "apps/pmi/desk.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::pmi;

namespace {

// Two hosts, this one has ranks 0 and 1.
const PmiJob kJob{"id", {{"a", {0, 1}}, {"b", {2}}}, 0, ""};

}  // namespace

TEST_CASE("PMI-1: what a rank asks at its start") {
  Desk desk(kJob);
  CHECK(desk.handle(0, "cmd=init pmi_version=1 pmi_subversion=1") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  CHECK(desk.handle(0, "cmd=init pmi_version=2 pmi_subversion=0") ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
  CHECK(desk.handle(0, "cmd=get_maxes") ==
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
  CHECK(desk.handle(0, "cmd=get_appnum") == "cmd=appnum appnum=0\n");
  CHECK(desk.handle(1, "cmd=get_my_kvsname") == "cmd=my_kvsname kvsname=hora_id\n");
  CHECK(desk.handle(1, "cmd=get_universe_size") == "cmd=universe_size size=3\n");
  CHECK(desk.handle(1, "cmd=get kvsname=hora_id key=PMI_process_mapping") ==
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))\n");
  CHECK(desk.handle(1, "cmd=finalize") == "cmd=finalize_ack\n");
  CHECK(desk.handle(1, "cmd=abort exitcode=3") == "");
  CHECK(abort_code("cmd=abort exitcode=3") == 3);
  CHECK(abort_code("cmd=abort exitcode=0") == 1);
  CHECK(abort_code("cmd=abort") == 1);
  CHECK_FALSE(abort_code("cmd=finalize exitcode=3"));
  CHECK(desk.handle(1, "cmd=publish_name service=x port=y") ==
        "cmd=publish_name_result rc=-1 msg=not_supported\n");
}

TEST_CASE("PMI-1: keys are seen here at once, elsewhere after a barrier of all") {
  Desk here(kJob);
  PmiJob other = kJob;
  other.own_host = 1;
  Desk there(other);
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
  const std::string news = here.take_news() + there.take_news();
  CHECK(here.take_news() == "");
  for (Desk* desk : {&here, &there}) {
    CHECK(desk->add_news(news));
    CHECK(desk->end_barrier() == "cmd=barrier_out\n");
    CHECK_FALSE(desk->all_here());
  }
  CHECK(there.handle(2, get) == "cmd=get_result rc=0 msg=success value=a b=c#$\n");
  CHECK_FALSE(there.add_news("no key\n"));
  CHECK_FALSE(there.add_news("a=no end"));
}

TEST_CASE("PMI-1: spawning is refused when its command is complete") {
  Desk desk(kJob);
  CHECK(desk.handle(0, "mcmd=spawn") == "");
  CHECK(desk.handle(0, "nprocs=2") == "");
  CHECK(desk.handle(1, "cmd=get_appnum") == "cmd=appnum appnum=0\n");  // of another rank
  CHECK(desk.handle(0, "endcmd") == "cmd=spawn_result rc=-1 msg=not_supported\n");
  CHECK(desk.handle(0, "cmd=get_appnum") == "cmd=appnum appnum=0\n");
}

TEST_CASE("PMI-1: which ranks share a host") {
  CHECK(process_mapping({{"a", {0, 1, 2, 3}}, {"b", {4, 5, 6, 7}}}) == "(vector,(0,2,4))");
  CHECK(process_mapping({{"a", {0, 1}}, {"b", {2}}, {"c", {3}}}) == "(vector,(0,1,2),(1,2,1))");
  CHECK(process_mapping({{"a", {0, 2}}, {"b", {1, 3}}}) == "(vector,(0,2,1),(0,2,1))");
  CHECK(process_mapping({{"a", {0}}}) == "(vector,(0,1,1))");
}
