// SPDX-License-Identifier: Apache-2.0
// The requests that a Horovod Gloo worker sends, byte by byte: a fresh connection for each, the
// request line of HTTP/1.1, exactly Host and Content-Length. And the same in HTTP/1.0.
#include <functional>

#include "rendezvous/contract/store_keys.h"
#include "tests/unit/rendezvous/server_fixture.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace hora::rendezvous::testing;

namespace {

using Reply = std::pair<int, std::string>;

class Worker {
 public:
  Worker(const Endpoint& server, std::string_view version) : server_(server), version_(version) {}

  Reply put(const std::string& path, const std::string& body) { return ask("PUT", path, body); }
  Reply get(const std::string& path) { return ask("GET", path, ""); }
  Reply done(const std::string& path) { return ask("DELETE", path, ""); }

  // Asks until it is there, as often as the worker would.
  Reply poll(const std::string& path) {
    const Deadline deadline = soon();
    for (;;) {
      Reply reply = get(path);
      if (reply.first != 404) return reply;
      REQUIRE(reply.second.empty());
      REQUIRE(Clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  Reply ask(const std::string& method, const std::string& path, const std::string& body) {
    RawClient client(server_);
    client.send(method + " " + path + " HTTP/" + version_ +
                "\r\nHost: " + format_address(server_.address) +
                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    Reply reply = client.read_reply();
    // The worker matches this name exactly.
    CHECK(client.last_head.find("\r\nContent-Length: " + std::to_string(reply.second.size()) +
                                "\r\n") != std::string::npos);
    CHECK(client.last_head.find("chunked") == std::string::npos);
    return reply;
  }

  Endpoint server_;
  std::string version_;
};

// 136 bytes for each peer: a socket address whose rest is garbage, and a sequence number.
std::string address_blobs(int index, int peers) {
  std::string blob;
  for (int peer = 0; peer < peers; ++peer) {
    for (int byte = 0; byte < 128; ++byte) {
      blob += static_cast<char>(index * 31 + peer * 7 + byte * 3);
    }
    blob += std::string(8, '\xff');
  }
  return blob;
}

// One worker's meeting in a scope; the mesh itself and its barrier are the caller's `mesh`.
void meet(Worker& worker, const std::string& scope, int index, int size,
          const std::function<void()>& mesh) {
  const std::string place = "/" + scope + "/";
  CHECK(worker.put(place + "rank_" + std::to_string(index), "vm") == Reply{200, ""});
  for (int peer = 0; peer < index; ++peer) {
    const Reply reply = worker.get(place + "rank_" + std::to_string(peer));
    CHECK((reply == Reply{200, "vm"} || reply == Reply{404, ""}));
  }
  CHECK(worker.put(place + std::to_string(index), address_blobs(index, size - 1)) ==
        Reply{200, ""});
  for (int peer = 0; peer < size; ++peer) {
    if (peer == index) continue;
    const std::string path = place + std::to_string(peer);
    CHECK(worker.poll(path) == Reply{200, address_blobs(peer, size - 1)});
    CHECK(worker.get(path) == Reply{200, address_blobs(peer, size - 1)});
  }
  mesh();
  CHECK(worker.done(place + std::to_string(index)) == Reply{200, ""});
}

// Both workers of a job on one host, taking turns where the protocol leaves them free.
void run_two_workers(RunningServer& server, std::string_view version) {
  Worker a(server.where(), version);
  Worker b(server.where(), version);
  const std::string hash = "_process_set_hash_7d48533536350577";
  for (const std::string& suffix : {std::string(), hash}) {
    for (const std::string& scope : {"global" + suffix, "local_localhost" + suffix}) {
      CAPTURE(scope);
      CHECK(a.put("/" + scope + "/rank_0", "vm") == Reply{200, ""});
      CHECK(b.put("/" + scope + "/rank_1", "vm") == Reply{200, ""});
      CHECK(b.get("/" + scope + "/rank_0") == Reply{200, "vm"});
      CHECK(b.get("/" + scope + "/0") == Reply{404, ""});
      CHECK(a.put("/" + scope + "/0", address_blobs(0, 1)) == Reply{200, ""});
      CHECK(a.get("/" + scope + "/1") == Reply{404, ""});
      CHECK(b.put("/" + scope + "/1", address_blobs(1, 1)) == Reply{200, ""});
      for (int twice = 0; twice < 2; ++twice) {
        CHECK(a.get("/" + scope + "/1") == Reply{200, address_blobs(1, 1)});
        CHECK(b.get("/" + scope + "/0") == Reply{200, address_blobs(0, 1)});
      }
      CHECK(a.done("/" + scope + "/0") == Reply{200, ""});
      CHECK(b.done("/" + scope + "/1") == Reply{200, ""});
    }
    meet(a, "cross_0" + suffix, 0, 1, [] {});
    meet(b, "cross_1" + suffix, 0, 1, [] {});
  }
}

}  // namespace

TEST_CASE("two workers of one host, as Horovod's do it") {
  for (const auto* version : {"1.1", "1.0"}) {
    CAPTURE(version);
    RunningServer server;
    server.with_service([](KvService& service) {
      service.begin_round(known_scopes({{"localhost", 2}}));
    });
    run_two_workers(server, version);
    // The known scopes are empty again; of the others only the hosts' names are left.
    server.with_service([](KvService& service) {
      CHECK(service.get("global", "0") == nullptr);
      CHECK(service.get("local_localhost", "rank_1") == nullptr);
      CHECK(service.get("cross_1", "0") == nullptr);
      CHECK(service.key_count() == 6);
    });
  }
}

TEST_CASE("eight workers on two hosts at the same time") {
  constexpr int kLocal = 4;
  constexpr int kHosts = 2;
  constexpr int kSize = kLocal * kHosts;
  RunningServer server;
  server.with_service([](KvService& service) {
    service.begin_round(known_scopes({{"a", kLocal}, {"b", kLocal}}));
  });
  // Catch's checks are for one thread at a time.
  std::mutex checks;
  std::vector<std::string> problems;
  std::vector<std::thread> workers;
  for (int rank = 0; rank < kSize; ++rank) {
    workers.emplace_back([&, rank] {
      const auto ask = [&](const std::string& method, const std::string& path,
                           const std::string& body) -> Reply {
        auto fd = net::connect_tcp(server.where(), soon());
        if (!fd) return {0, fd.error().message};
        const std::string bytes =
            method + " " + path +
            " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n\r\n" + body;
        if (!net::send_all(fd->get(), bytes, soon())) return {0, "sending"};
        std::string in;
        std::array<char, 4096> chunk;
        std::size_t head = std::string::npos;
        for (;;) {
          head = in.find("\r\n\r\n");
          if (head != std::string::npos) {
            const auto at = in.find("Content-Length: ");
            const std::size_t length = std::stoul(in.substr(at + 16, 20));
            if (in.size() >= head + 4 + length) {
              return {std::stoi(in.substr(9, 3)), in.substr(head + 4, length)};
            }
          }
          auto got = net::receive_some(fd->get(), chunk.data(), chunk.size(), soon());
          if (!got || *got == 0) return {0, "receiving"};
          in.append(chunk.data(), *got);
        }
      };
      const auto expect = [&](const Reply& reply, const Reply& wanted, const std::string& what) {
        if (reply == wanted) return;
        std::lock_guard lock(checks);
        problems.push_back(what + ": " + std::to_string(reply.first) + " " + reply.second);
      };
      const int local = rank % kLocal;
      const int host = rank / kLocal;
      const struct {
        std::string scope;
        int index;
        int size;
      } meetings[] = {{"global", rank, kSize},
                      {host == 0 ? "local_a" : "local_b", local, kLocal},
                      {"cross_" + std::to_string(local), host, kHosts}};
      for (const auto& [scope, index, size] : meetings) {
        const std::string place = "/" + scope + "/";
        expect(ask("PUT", place + std::to_string(index), address_blobs(index, size - 1)), {200, ""},
               "put in " + scope);
        for (int peer = 0; peer < size; ++peer) {
          Reply reply{404, ""};
          for (const Deadline deadline = soon(); reply.first == 404 && Clock::now() < deadline;) {
            reply = ask("GET", place + std::to_string(peer), "");
          }
          expect(reply, {200, address_blobs(peer, size - 1)}, "get in " + scope);
        }
        // Instead of the mesh's barrier, which the addresses would have led to.
        const std::string barrier = "/barrier_" + scope + "/";
        expect(ask("PUT", barrier + std::to_string(index), "x"), {200, ""}, "barrier");
        for (int peer = 0; peer < size; ++peer) {
          expect(ask("GET", barrier + std::to_string(peer) + "?wait=20", ""), {200, "x"},
                 "barrier");
        }
        expect(ask("DELETE", place + std::to_string(index), ""), {200, ""}, "done with " + scope);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(problems == std::vector<std::string>{});
  server.with_service([](KvService& service) {
    CHECK(service.get("global", "0") == nullptr);
    CHECK(service.get("cross_3", "1") == nullptr);
  });
}

TEST_CASE("what Horovod's server refuses by dropping the line is refused with a status") {
  RunningServer server;
  const auto status_of = [&](const std::string& bytes) {
    RawClient client(server.where());
    client.send(bytes);
    return client.read_reply().first;
  };
  CHECK(status_of("GET /only HTTP/1.1\r\nContent-Length: 0\r\n\r\n") == 400);
  CHECK(status_of("GET /a/b/c HTTP/1.1\r\nContent-Length: 0\r\n\r\n") == 400);
  CHECK(status_of("PUT /a/b HTTP/1.1\r\n\r\n") == 411);
  CHECK(status_of("POST /a/b HTTP/1.1\r\nContent-Length: 0\r\n\r\n") == 501);
  CHECK(status_of("HEAD /etc/passwd HTTP/1.1\r\nContent-Length: 0\r\n\r\n") == 404);
}
