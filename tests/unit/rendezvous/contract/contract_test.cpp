// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/contract/worker_env.h"
#include "tests/support/catch.h"

using namespace hora::rendezvous;

namespace {

std::map<std::string, std::string> as_map(const EnvironmentList& list) {
  std::map<std::string, std::string> map(list.begin(), list.end());
  CHECK(map.size() == list.size());  // no name twice
  return map;
}

}  // namespace

TEST_CASE("a rank's variables") {
  const auto map = as_map(rank_environment({.rank = 5,
                                            .size = 8,
                                            .local_rank = 1,
                                            .local_size = 4,
                                            .cross_rank = 1,
                                            .cross_size = 2,
                                            .host_index = 1,
                                            .hostname = "node.b"}));
  const std::map<std::string, std::string> expected = {
      {"HOROVOD_HOSTNAME", "node.b"},
      {"HOROVOD_RANK", "5"},
      {"HOROVOD_SIZE", "8"},
      {"HOROVOD_LOCAL_RANK", "1"},
      {"HOROVOD_LOCAL_SIZE", "4"},
      {"HOROVOD_CROSS_RANK", "1"},
      {"HOROVOD_CROSS_SIZE", "2"},
      {"RANK", "5"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "1"},
  };
  CHECK(map == expected);
}

TEST_CASE("a host's variables: all that is known") {
  const auto map = as_map(host_environment({.job_id = "j1",
                                            .rendezvous_address = "10.0.0.1",
                                            .rendezvous_port = 4000,
                                            .token = "secret",
                                            .interfaces = {"eth1", "eth0"},
                                            .master_address = "10.0.0.2",
                                            .master_port = 29500,
                                            .controller = "gloo",
                                            .cpu_operations = "gloo",
                                            .elastic = true}));
  const std::map<std::string, std::string> expected = {
      {"HORA_JOB_ID", "j1"},
      {"HORA_RENDEZVOUS_TOKEN", "secret"},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4000"},
      {"HOROVOD_GLOO_IFACE", "eth1"},
      {"NCCL_SOCKET_IFNAME", "eth1,eth0"},
      {"HOROVOD_CONTROLLER", "gloo"},
      {"HOROVOD_CPU_OPERATIONS", "gloo"},
      {"HOROVOD_ELASTIC", "1"},
      {"MASTER_ADDR", "10.0.0.2"},
      {"MASTER_PORT", "29500"},
      {"PYTHONUNBUFFERED", "1"},
  };
  CHECK(map == expected);
}

TEST_CASE("a host's variables: only NCCL takes a name for a prefix") {
  const auto map = as_map(host_environment({.interfaces = {"eth1"}, .exact_interfaces = true}));
  CHECK(map.at("NCCL_SOCKET_IFNAME") == "=eth1");
  CHECK(map.at("HOROVOD_GLOO_IFACE") == "eth1");
}

TEST_CASE("a host's variables: nothing known, nothing claimed") {
  CHECK(as_map(host_environment({})) ==
        std::map<std::string, std::string>{{"PYTHONUNBUFFERED", "1"}});
}

TEST_CASE("a rank's identity is reserved, a user's choice is not") {
  for (const auto& [name, value] : rank_environment({})) CHECK(is_job_variable(name));
  CHECK(is_job_variable("HORA_RENDEZVOUS_TOKEN"));
  CHECK(is_job_variable("MASTER_PORT"));
  CHECK_FALSE(is_job_variable("NCCL_SOCKET_IFNAME"));
  CHECK_FALSE(is_job_variable("HOROVOD_CONTROLLER"));
  CHECK_FALSE(is_job_variable("HOROVOD_RANK2"));
  CHECK_FALSE(is_job_variable("PATH"));
  const auto names = job_variable_names();
  CHECK(std::set<std::string_view>(names.begin(), names.end()).size() == names.size());
}

TEST_CASE("the scopes of a job") {
  CHECK(known_scopes({{"a", 2}, {"b", 1}}) ==
        std::vector<ScopeSize>{
            {"global", 3}, {"local_a", 2}, {"local_b", 1}, {"cross_0", 2}, {"cross_1", 1}});
  CHECK(rank_key(12) == "12");
}

TEST_CASE("what a worker could not connect to travels as text") {
  CHECK(unreached_key(3, 17) == "unreached.3.17");
  CHECK(unreached_text({false, 5}) == "rank 5");
  CHECK(parse_unreached("unreached.3.17", "rank 5") == Unreached{3, 17, {false, 5}});
  CHECK(parse_unreached("unreached.3.17", unreached_text({true, 2})) ==
        Unreached{3, 17, {true, 2}});
  for (const char* key : {"", "unreached.3", "unreached.3.17.1", "void.3.17", "unreached.x.1"}) {
    CHECK(!parse_unreached(key, "rank 5"));
  }
  for (const char* text : {"", "5", "rank", "rank -5", "rank x", "node 5", "rank 5 6"}) {
    CHECK(!parse_unreached("unreached.3.17", text));
  }
}

TEST_CASE("the place of an elastic worker travels as text") {
  const PlaceQuestion question{17, 3, true};
  CHECK(place_key(question) == "17.3.1");
  CHECK(parse_place_key("17.3.1") == question);
  for (const char* other :
       {"", "17", "17.3", "17.3.2", "-1.3.0", "host_update.3.1", "17.3.1.0", "17.x.1"}) {
    CHECK(!parse_place_key(other));
  }
  ElasticPlace place;
  place.rank = {2, 5, 0, 2, 1, 3, 0, {}};
  place.epoch = 4;
  place.interface = "eth0";
  CHECK(slot_text(place.rank) == "2,5,0,2,1,3");
  CHECK(encode_elastic_place(place) == "2,5,0,2,1,3,4,eth0");
  const auto back = decode_elastic_place("2,5,0,2,1,3,4,eth0");
  REQUIRE(back);
  REQUIRE(*back);
  CHECK((*back)->rank.rank == 2);
  CHECK((*back)->rank.cross_size == 3);
  CHECK((*back)->epoch == 4);
  CHECK((*back)->interface == "eth0");
  const auto gone = decode_elastic_place(no_slot_text());
  REQUIRE(gone);
  CHECK(!*gone);
  for (const char* other :
       {"", "1,2,3", "2,5,0,2,1,3,4", "2,5,0,2,1,3,x,eth0", "-1,5,0,2,1,3,4,e"}) {
    CHECK(!decode_elastic_place(other));
  }
}
