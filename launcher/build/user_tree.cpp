// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/user_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "launcher/build/frame_packer.h"
#include "launcher/build/part_hash.h"
#include "launcher/build/sha256.h"
#include "launcher/build/tree_cut.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/frame.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kChunk = 1u << 20;
// Most of a tree is text and code, which this level makes small; on what is packed already it takes
// hardly more time than a lower one.
constexpr int kTreeLevel = 3;
constexpr unsigned kMostThreads = 8;

// Passes on what hosts get of a file, piece by piece. `chunk` is a place to read to, as trees have
// many small files.
Status read_in_pieces(const PartFile& listed, std::string& chunk,
                      const std::function<Status(std::string_view)>& take) {
  const std::string& path = listed.source;
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  chunk.resize(kChunk);
  if (!listed.head.empty()) HORA_TRY(take(listed.head));
  for (auto offset = static_cast<off_t>(listed.replaced);;) {
    const ssize_t got = ::pread(file.get(), chunk.data(), chunk.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + path);
    if (got == 0) return Ok{};
    offset += got;
    HORA_TRY(take({chunk.data(), static_cast<std::size_t>(got)}));
  }
}

bool has_contents(const PartFile& file) {
  return file.file.link_target.empty() && (file.file.mode & S_IFMT) == 0;
}

enum class Hashed : char {
  kSettled,    // what was read will not change without another stamp
  kUnsettled,  // it may
  kGone,       // since it was listed: as if it had gone before
};

// What a part is called by must tell links and folders from files.
Result<Hashed> hash_file(PartFile& file, std::string& chunk) {
  Sha256 hash;
  if (!has_contents(file)) {
    hash.add(file.file.link_target.empty() ? "folder" : "link " + file.file.link_target);
    file.sha256 = hash.hex();
    return Hashed::kUnsettled;
  }
  const std::int64_t began_ns = file_clock_ns();
  std::uint64_t size = 0;
  const Status read = read_in_pieces(file, chunk, [&](std::string_view piece) -> Status {
    hash.add(piece);
    size += piece.size();
    return check_interrupted();
  });
  if (!read && read.error().errnum == ENOENT) return Hashed::kGone;
  if (!read) return read.error();
  // It grows or shrinks under our hands: what was read is what is sent.
  file.file.size_bytes = size;
  file.sha256 = hash.hex();
  struct stat after {};
  const bool settled = ::stat(file.source.c_str(), &after) == 0 && stamp_of(after) == file.stamp &&
                       is_settled(file.stamp, began_ns);
  return settled ? Hashed::kSettled : Hashed::kUnsettled;
}

// By several threads: one hashes less than a disk can read.
Status hash_files(std::vector<PartFile>& files, TreeMemory& memory) {
  // What has not changed since an earlier launch is not opened.
  std::vector<PartFile*> unknown;
  for (PartFile& each : files) {
    if (!has_contents(each) || !memory.recall(each)) unknown.push_back(&each);
  }
  std::vector<Hashed> hashed(unknown.size(), Hashed::kUnsettled);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> failed;
  const auto work = [&] {
    std::string chunk;
    for (std::size_t i = next++; i < unknown.size(); i = next++) {
      auto result = hash_file(*unknown[i], chunk);
      if (result) {
        hashed[i] = *result;
        continue;
      }
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::move(result).error();
      next = unknown.size();
    }
  };
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& each : threads) each.join();
  if (failed) return std::move(*failed);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    if (hashed[i] == Hashed::kSettled) memory.learn(*unknown[i]);
  }
  // Those that have gone.
  std::erase_if(files, [](const PartFile& each) { return each.sha256.empty(); });
  memory.save(files);
  return Ok{};
}

}  // namespace

Result<UserTree> read_user_tree(const std::vector<TreeRoot>& roots, std::uint64_t most_bytes,
                                TreeMemory& memory) {
  auto listing = list_tree(roots, most_bytes);
  if (!listing) return std::move(listing).error();
  HORA_TRY(check_names(*listing));
  return make_user_tree(std::move(*listing), memory);
}

Result<UserTree> make_user_tree(TreeListing listing, TreeMemory& memory) {
  HORA_TRY(hash_files(listing.files, memory));
  UserTree tree;
  tree.left_out = std::move(listing.left_out);
  for (std::vector<PartFile>& each : cut_tree(std::move(listing.files))) {
    TreePart& part = tree.parts.emplace_back();
    part.hash = part_hash(each);
    part.files = std::move(each);
    for (const PartFile& file : part.files) part.bytes += file.file.size_bytes;
    tree.bytes += part.bytes;
  }
  return tree;
}

Result<std::shared_ptr<const std::string>> tree_part_frames(const TreePart& part,
                                                            PackingState& state) {
  FramePacker packer(kTreeLevel);
  std::string chunk;
  BundlePart header;
  header.hash = part.hash;
  for (const PartFile& listed : part.files) {
    header.files.push_back(listed.file);
    if (!has_contents(listed)) continue;
    Sha256 hash;
    const Status read = read_in_pieces(listed, chunk, [&](std::string_view piece) -> Status {
      if (state.over) return make_error(ErrorCode::kFailed, "nobody needs it any more");
      state.read_bytes += piece.size();
      hash.add(piece);
      return packer.add(piece);
    });
    const bool gone = !read && read.error().errnum == ENOENT;
    if (!read && !gone) return read.error();
    if (gone || hash.hex() != listed.sha256) {
      return make_error(ErrorCode::kFailed, listed.source +
                                                " has changed since horarun began; start the job "
                                                "when nothing writes to it");
    }
  }
  auto packed = packer.finish();
  if (!packed) return std::move(packed).error();
  header.packed_sha256 = std::move(packed->sha256);
  std::string frames = encode_frame(FrameType::kPart, encode(header));
  frames += packed->frames;
  return std::make_shared<const std::string>(std::move(frames));
}

}  // namespace hora::launcher
