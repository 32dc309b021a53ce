#include "launcher/agent/staging.h"

#include <fcntl.h>

#include <cerrno>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

namespace {

// Tells the shim what to remove, should we be killed before we can.
template <std::size_t N>
std::function<Status(const std::string&)> announcer(char (&text)[N]) {
  return [&text](const std::string& path) -> Status {
    if (!set_shared_text(text, path)) {
      return make_error(ErrorCode::kUsage, "the path " + path.substr(0, 80) + "... is too long");
    }
    return Ok{};
  };
}

}  // namespace

Staging::Staging(std::string host, std::string cache_directory, std::string local_bundle,
                 ShimState& share)
    : host_(std::move(host)),
      cache_directory_(std::move(cache_directory)),
      bundle_root_(std::move(local_bundle)),
      share_(share) {}

Failure Staging::cache_failure(const Error& error) const {
  std::string advice = failure::open_files_advice(error.message, "there");
  if (advice.empty()) {
    advice = "free some space there, or name another directory with XDG_CACHE_HOME or TMPDIR";
  }
  return {std::string(failure::kCache), error.message + " (host " + host_ + ")", std::move(advice)};
}

Failure Staging::ship_failure(const Error& error) const {
  return {std::string(failure::kShip), error.message + " (host " + host_ + ")", ""};
}

Failure Staging::protocol_failure(const std::string& what) const {
  return {std::string(failure::kProtocol), "the agent on host " + host_ + " was sent " + what, ""};
}

Status Staging::open_cache() {
  if (cache_) return Ok{};
  if (cache_directory_.empty()) {
    return make_error(ErrorCode::kUsage, "the agent was started without a cache directory");
  }
  auto cache = BundleCache::open(cache_directory_);
  if (!cache) return std::move(cache).error();
  cache_.emplace(std::move(*cache));
  return Ok{};
}

bool Staging::have_bundle(const std::string& hash) {
  if (hash.empty() || !bundle_root_.empty()) return true;
  if (!open_cache()) return false;
  bundle_root_ = cache_->find(hash).value_or("");
  return !bundle_root_.empty();
}

std::optional<Failure> Staging::on_bundle(std::string_view payload) {
  if (in_progress()) return protocol_failure("a bundle within another delivery");
  auto header = decode_bundle_header(payload);
  if (!header) return protocol_failure(header.error().message);
  if (const Status opened = open_cache(); !opened) return cache_failure(opened.error());
  auto arrival = cache_->receive(std::move(*header), announcer(share_.unfinished_entry));
  if (!arrival) return cache_failure(arrival.error());
  arrival_ = std::move(*arrival);
  return std::nullopt;
}

std::optional<Failure> Staging::on_ship_file(std::string_view payload) {
  if (in_progress()) return protocol_failure("a file within another delivery");
  const auto file = decode_ship_file(payload);
  if (!file) return protocol_failure(file.error().message);
  const auto path = job_directory();
  if (!path) return ship_failure(path.error());
  os::Fd directory(::open(path->c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return ship_failure(errno_error(errno, "opening " + *path));
  BundleFile entry;
  entry.path = file->name;
  entry.size_bytes = file->size_bytes;
  entry.mode = file->mode;
  entry.sha256 = file->sha256;
  auto unpacker = FileUnpacker::create(std::move(directory), *path, {std::move(entry)});
  if (!unpacker) return ship_failure(unpacker.error());
  shipped_ = std::move(*unpacker);
  return std::nullopt;
}

std::optional<Failure> Staging::on_data(std::string_view bytes) {
  if (arrival_) {
    if (const Status written = arrival_->write(bytes); !written) {
      arrival_.reset();
      return cache_failure(written.error());
    }
  } else if (shipped_) {
    if (const Status written = shipped_->write(bytes); !written) {
      return ship_failure(written.error());
    }
  } else {
    return protocol_failure("data that belongs to nothing");
  }
  return std::nullopt;
}

std::optional<Failure> Staging::on_data_end() {
  if (arrival_) {
    const auto path = arrival_->finish();
    arrival_.reset();
    if (!path) return cache_failure(path.error());
    bundle_root_ = *path;
  } else if (shipped_) {
    const Status finished = shipped_->finish();
    shipped_.reset();
    if (!finished) return ship_failure(finished.error());
  } else {
    return protocol_failure("the end of nothing");
  }
  return std::nullopt;
}

Result<std::string> Staging::job_directory() {
  if (!directory_) {
    auto created = JobDirectory::create(announcer(share_.job_directory));
    if (!created) return std::move(created).error();
    directory_.emplace(std::move(*created));
  }
  return directory_->path();
}

void Staging::clean_up() {
  arrival_.reset();
  shipped_.reset();
  directory_.reset();
}

}  // namespace hora::launcher
