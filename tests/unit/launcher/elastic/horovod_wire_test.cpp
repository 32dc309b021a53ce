// SPDX-License-Identifier: Apache-2.0
// The pickles were made by CPython, protocols 3 to 5.
#include "launcher/elastic/horovod_wire.h"

#include <pthread.h>

#include <functional>

#include "tests/support/catch.h"

using namespace hora::launcher::elastic;

namespace {

constexpr const char* kContacts[] = {
    "gAN9cQAoWAIAAABsb3EBXXECWAkAAAAxMjcuMC4wLjFxA02gD4ZxBGFYBAAAAGV0aDBxBV1xBihYCAAAADEwLjAu"
    "MC41cQdNQZyGcQhYCAAAADEwLjAuMC42cQlLyIZxCmV1QyBra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr"
    "a3ELhnEMLg==",
    "gASVbQAAAAAAAAB9lCiMAmxvlF2UjAkxMjcuMC4wLjGUTaAPhpRhjARldGgwlF2UKIwIMTAuMC4wLjWUTUGchpSM"
    "CDEwLjAuMC42lEvIhpRldUMga2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2uUhpQu",
    "gAWVbQAAAAAAAAB9lCiMAmxvlF2UjAkxMjcuMC4wLjGUTaAPhpRhjARldGgwlF2UKIwIMTAuMC4wLjWUTUGchpSM"
    "CDEwLjAuMC42lEvIhpRldUMga2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2uUhpQu"};
// (os.system, "true") to be called by a reader that unpickles it.
constexpr const char* kEvil = "gASVJQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpRDAWuUhpQu";

const std::string kKey(32, 'k');

std::string addresses(const WorkerContact& contact) {
  std::string text;
  for (const auto& endpoint : contact.endpoints) text += hora::format_endpoint(endpoint) + " ";
  return text;
}

std::string in_base64(const std::string& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : bytes + std::string((3 - bytes.size() % 3) % 3, '\0')) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    if (++count % 3 != 0) continue;
    for (int shift = 18; shift >= 0; shift -= 6) text.push_back(kDigits[(bits >> shift) & 63]);
    bits = 0;
  }
  return text;
}

// Of what is nested deeply, each level would cost a part of it.
bool on_a_small_stack(const std::function<bool()>& task) {
  struct Run {
    const std::function<bool()>& task;
    bool answer;
  } run{task, false};
  pthread_attr_t small;
  REQUIRE(::pthread_attr_init(&small) == 0);
  REQUIRE(::pthread_attr_setstacksize(&small, 256 * 1024) == 0);
  pthread_t thread;
  const auto main = [](void* given) -> void* {
    auto& run = *static_cast<Run*>(given);
    run.answer = run.task();
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, &small, main, &run) == 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&small);
  return run.answer;
}

}  // namespace

TEST_CASE("a worker's contact is read from any version of pickles") {
  for (const char* text : kContacts) {
    const auto contact = parse_worker_contact(text);
    REQUIRE(contact);
    CHECK(contact->key == kKey);
    CHECK(addresses(*contact) == "127.0.0.1:4000 10.0.0.5:40001 10.0.0.6:200 ");
  }
}

TEST_CASE("a pickle that would do something is refused, and so is what is cut or changed") {
  CHECK(!parse_worker_contact(kEvil));
  CHECK(!parse_worker_contact(""));
  CHECK(!parse_worker_contact("no base64!"));
  const std::string good = kContacts[1];
  for (std::size_t length = 0; length + 4 < good.size(); length += 4) {
    CHECK(!parse_worker_contact(good.substr(0, length)));
  }
  // Whatever it is turned into, it is an error or a contact, and no crash.
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char c : {'A', '/', 'u', 'K'}) {
      std::string changed = good;
      changed[at] = c;
      (void)parse_worker_contact(changed);
    }
  }
}

TEST_CASE("a pickle that doubles itself or has no bottom is refused at once") {
  const auto refused = [](const std::string& pickle) {
    return !parse_worker_contact(in_base64(pickle));
  };
  std::string doubling("\x80\x04]q\0", 5);
  for (int i = 0; i < 60; ++i) doubling += std::string("h\0h\0\x86q\0", 7);
  CHECK(refused(doubling + "."));
  CHECK(on_a_small_stack([&] { return refused("\x80\x04)" + std::string(90'000, '\x85') + "."); }));
  std::string long_words("\x80\x04X\0\0\x10\0", 7);
  long_words += std::string(1u << 20, 'w') + std::string("q\0", 2);
  for (int i = 0; i < 40'000; ++i) long_words += std::string("h\0", 2);
  CHECK(refused(long_words + "."));
}

TEST_CASE("what is sent is signed, and what comes is believed only if it is") {
  const std::string message = hosts_updated_message(kKey, 1'700'000'000, 2);
  const auto body = read_signed_message(kKey, message);
  REQUIRE(body);
  REQUIRE(*body);
  CHECK((*body)->find("HostsUpdatedRequest") != std::string::npos);
  for (std::size_t length = 0; length < message.size(); ++length) {
    const auto part = read_signed_message(kKey, message.substr(0, length));
    REQUIRE(part);
    CHECK(!*part);
  }
  CHECK(!read_signed_message("another key", message));
  std::string changed = message;
  changed.back() = 'x';
  CHECK(!read_signed_message(kKey, changed));
  CHECK(!read_signed_message(kKey, std::string(32, 'x') + "\xff\xff\xff\x7f"));
}
