// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/host_registry.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::launcher::elastic;
using namespace std::chrono_literals;

namespace {

const HostRegistry::TimePoint kStart{};

std::string usable(const HostRegistry& registry, HostRegistry::TimePoint now) {
  const auto hosts = registry.available(now);
  return hosts.empty() ? "" : format_host_list(hosts);
}

Host host(const std::string& name, int slots) { return {name, "", slots}; }

}  // namespace

TEST_CASE("hosts keep the place at which they were first seen") {
  HostRegistry registry(std::nullopt, [] { return 0.0; });
  registry.list({host("b", 2), host("a", 1)});
  registry.list({host("c", 1), host("a", 1), host("b", 3)});
  CHECK(usable(registry, kStart) == "b:3,a:1,c:1");
  registry.list({host("c", 1)});
  CHECK(usable(registry, kStart) == "c:1");
  registry.list({host("a", 1), host("c", 1), host("d", 0)});
  CHECK(usable(registry, kStart) == "a:1,c:1");
}

TEST_CASE("without a range a host that failed never returns") {
  HostRegistry registry(std::nullopt, [] { return 0.0; });
  registry.list({host("a", 1), host("b", 1)});
  registry.blacklist("a", kStart);
  CHECK(usable(registry, kStart + 24h) == "b:1");
  CHECK(!registry.next_return(kStart));
  registry.list({host("b", 1)});
  registry.list({host("a", 1), host("b", 1)});
  CHECK(usable(registry, kStart) == "b:1");
}

TEST_CASE("with a range it returns, later after each failure") {
  double luck = 0.0;
  HostRegistry registry(CooldownRange{2s, 20s}, [&luck] { return luck; });
  registry.list({host("a", 1)});
  auto now = kStart;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 4s);
  registry.blacklist("a", now + 1s);  // while it is left alone: changes nothing
  CHECK(registry.next_return(now) == now + 4s);
  CHECK(registry.is_blacklisted("a", now + 3999ms));
  CHECK(usable(registry, now + 4s) == "a:1");
  now += 4s;
  luck = 0.5;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 9s);
  now += 9s;
  registry.blacklist("a", now);
  CHECK(registry.next_return(now) == now + 17s);
  for (int failure = 4; failure < 80; ++failure) {
    now += 20s;
    registry.blacklist("a", now);
    CHECK(registry.next_return(now) == now + 20s);
  }
}

TEST_CASE("a host that is not listed does not return by itself") {
  HostRegistry registry(CooldownRange{1s, 10s}, [] { return 0.0; });
  registry.list({host("a", 1)});
  registry.blacklist("a", kStart);
  registry.list({});
  CHECK(!registry.may_return(kStart));
  registry.list({host("a", 2)});
  CHECK(registry.may_return(kStart));
  CHECK(usable(registry, kStart + 2s) == "a:2");
}
