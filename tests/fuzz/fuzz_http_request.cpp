// SPDX-License-Identifier: Apache-2.0
// Bytes from an unauthenticated client, through the request reader and the key-value service. The
// first byte says in what pieces they arrive, which must not change the result.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "rendezvous/http/reader.h"
#include "rendezvous/kv_service.h"

using namespace hora;
using namespace hora::rendezvous;

namespace {

void must(bool condition) {
  if (!condition) std::abort();
}

constexpr KvLimits kLimits{.value_bytes = 1000,
                           .total_bytes = 4000,
                           .keys = 16,
                           .parked_waits = 4,
                           .path_bytes = 64,
                           .longest_wait = std::chrono::seconds(10)};

struct Transcript {
  std::string text;
  bool failed = false;
};

Transcript serve(std::string_view stream, std::size_t step) {
  KvService service({.token = {}, .allow = {{IpAddress{}, 0}}}, kLimits);
  service.begin_round({{"global", 2}});
  http::RequestReader reader;
  Transcript out;
  std::string buffer;
  Clock::time_point now{};
  KvService::ClientId client = 1;
  const auto note = [&](const KvReply& reply) {
    out.text += std::to_string(reply.status) + " ";
    if (reply.body) out.text += *reply.body;
    out.text += '\n';
  };
  for (std::size_t at = 0; at < stream.size(); at += step) {
    buffer += stream.substr(at, step);
    std::string_view bytes = buffer;
    for (bool more = true; more;) {
      switch (reader.read(bytes)) {
        case http::ReadStep::kNeedMore:
          more = false;
          break;
        case http::ReadStep::kHead: {
          const auto admission = service.admit(reader.head(), IpAddress{}, 0);
          if (admission.refusal) {
            note(*admission.refusal);
            return out;
          }
          reader.allow_body(admission.body_limit);
          break;
        }
        case http::ReadStep::kComplete: {
          auto reply = service.handle(client, reader.head(), reader.take_body(), now);
          if (reply) {
            note(*reply);
          } else {
            out.text += "parked\n";
            ++client;
          }
          reader.reset();
          now += std::chrono::seconds(1);
          service.expire(now);
          for (const auto& ready : service.take_ready()) {
            out.text += std::to_string(ready.client) + ": ";
            note(ready.reply);
          }
          must(service.stored_bytes() <= kLimits.total_bytes);
          must(service.key_count() <= kLimits.keys);
          must(service.parked_count() <= kLimits.parked_waits);
          break;
        }
        case http::ReadStep::kError:
          must(reader.error_status() >= 400 && reader.error_status() < 600);
          out.failed = true;
          return out;
      }
    }
    buffer = std::string(bytes);
  }
  for (KvService::ClientId id = 1; id <= client; ++id) service.forget(id);
  must(service.parked_count() == 0);
  must(!service.next_deadline());
  service.begin_round({});
  must(service.stored_bytes() == 0 && service.key_count() == 0);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + data[0] % 64;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Transcript whole = serve(stream, stream.size());
  const Transcript pieces = serve(stream, step);
  // What is too long for a limit may be found out sooner or later, and a malformed head that is not
  // whole may be waited for; but both see the same requests.
  if (stream.size() < http::ReadLimits{}.target_bytes) {
    must(whole.failed || !pieces.failed);
    must(whole.text == pieces.text);
  }
  return 0;
}
