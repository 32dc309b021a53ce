// SPDX-License-Identifier: Apache-2.0
// One thread reads and compresses the agent when the first host asks for it. Hosts that ask earlier
// than it is ready wait in a list; later ones get the shared bytes at once.
#include "launcher/transports/agent_payload.h"

#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>

#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// Level 9 makes the agent 9 % smaller than level 1 and takes eight times as long (0.4 s), and the
// first host waits for it: the build has done that (scripts/cmake/bundle), and this is for an agent
// that is not the build's.
constexpr int kLevel = 1;
constexpr int kGzipWindow = 15 + 16;  // zlib's way to ask for gzip's header and trailer
constexpr std::size_t kGzipTrailer = 8;

Result<std::string> read_agent(const std::string& path) {
  auto bytes = os::read_file(path);
  if (!bytes) return std::move(bytes).error().with_context("the agent");
  if (bytes->empty()) return make_error(ErrorCode::kNotFound, "the agent " + path + " is empty");
  return bytes;
}

Result<AgentPayload::Bytes> shared(Result<std::string> bytes) {
  if (!bytes) return std::move(bytes).error();
  return std::make_shared<const std::string>(*std::move(bytes));
}

// The packed file next to the agent. The trailer of gzip (RFC 1952: CRC-32 and size of the
// contents, little-endian) says whether it is this agent: another build may have replaced one of
// the two.
std::optional<std::string> packed_by_the_build(const std::string& path, const std::string& bytes) {
  auto packed = os::read_file(path + ".gz");
  if (!packed || packed->size() < kGzipTrailer) return std::nullopt;
  const auto number_at = [&packed](std::size_t at) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      number |= std::uint32_t{static_cast<unsigned char>((*packed)[at + i])} << (8 * i);
    }
    return number;
  };
  const auto check =
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  const std::size_t trailer = packed->size() - kGzipTrailer;
  if (number_at(trailer) != check || number_at(trailer + 4) != bytes.size()) return std::nullopt;
  return *std::move(packed);
}

// The bound that zlib returns makes one call of deflate() enough.
Result<std::string> gzip_bytes(const std::string& bytes) {
  z_stream stream{};
  if (::deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipWindow, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    return make_error(ErrorCode::kUnavailable, "packing the agent: out of memory");
  }
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (code != Z_STREAM_END) return make_error(ErrorCode::kFailed, "packing the agent failed");
  return out;
}

}  // namespace

// After this no receiver runs any more: the loops that the receivers post to may be destroyed next.
void AgentPayload::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    waiting_.clear();
  }
  if (worker_.joinable()) worker_.join();
}

std::uint64_t AgentPayload::size_bytes() const {
  struct stat status {};
  return ::stat(path_.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

// The receiver runs without the lock, so it may call get() again.
void AgentPayload::get(bool gzip, Receiver receiver) {
  std::unique_lock lock(mutex_);
  if (closing_) return;
  const auto& ready = gzip ? packed_ : raw_;
  if (ready) {
    const Result<Bytes> result = *ready;
    lock.unlock();
    receiver(result);
    return;
  }
  waiting_.emplace_back(gzip, std::move(receiver));
  if (started_) return;
  started_ = true;
  try {
    worker_ = std::thread([this] { prepare(); });
  } catch (const std::system_error&) {  // no thread to be had: the caller waits
    lock.unlock();
    prepare();
  }
}

// Reads and packs without the lock; only the exchange of the result takes it.
void AgentPayload::prepare() {
  auto raw = shared(read_agent(path_));
  Result<Bytes> packed = raw;
  if (raw) {
    auto before = packed_by_the_build(path_, **raw);
    packed = shared(before ? Result<std::string>(*std::move(before)) : gzip_bytes(**raw));
  }
  std::vector<std::pair<bool, Receiver>> waiting;
  {
    std::lock_guard lock(mutex_);
    raw_ = std::make_unique<Result<Bytes>>(raw);
    packed_ = std::make_unique<Result<Bytes>>(packed);
    if (closing_) return;
    waiting.swap(waiting_);
  }
  for (auto& [gzip, receiver] : waiting) receiver(gzip ? packed : raw);
}

}  // namespace hora::launcher
