// SPDX-License-Identifier: Apache-2.0
// Everything that is delivered to a host before its ranks start. Frames of data carry no name: they
// belong to the delivery that is under way, of which there is one at a time.
#include "launcher/agent/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/announcer.h"
#include "launcher/agent/cache_clean.h"
#include "launcher/agent/cache_places.h"
#include "launcher/agent/message_order.h"
#include "launcher/agent/part_files.h"
#include "launcher/failures/failure_code.h"

namespace hora::launcher {

namespace {

// The user waits for the end of his job; what is left is for the next one to remove.
constexpr Milliseconds kCleaningTime{1'000};

std::vector<std::string> directories_of(const std::string& first) {
  return first.empty() ? std::vector<std::string>() : cache_places_from(first);
}

}  // namespace

Staging::Staging(Source source, ShimState& share)
    : source_(std::move(source)),
      share_(share),
      cache_directories_(directories_of(source_.cache_directory)),
      runtime_({cache_directories_, source_.agent_sha256, source_.cleans_cache}, share.runtime) {}

Failure Staging::ship_failure(const Error& error) const {
  return {std::string(failure::kShip), error.message, ""};
}

std::vector<std::string> Staging::find_missing(std::vector<std::string> parts) {
  if (!source_.local_bundle.empty()) parts.clear();
  return runtime_.find_missing(std::move(parts));
}

const std::string& Staging::bundle_root() const {
  return source_.local_bundle.empty() ? runtime_.root() : source_.local_bundle;
}

// An agent that lies in no cache, on the launcher's own machine, keeps folders where those of other
// machines do.
std::vector<std::string> Staging::find_missing_of_tree(const OfferTree& offer) {
  if (cache_directories_.empty()) cache_directories_ = cache_places();
  const BundleStaging::Source source{cache_directories_, {}, false};
  std::vector<std::string> missing;
  if (!offer.parts.empty()) {
    tree_ = std::make_unique<BundleStaging>(source, share_.tree);
    missing = tree_->find_missing(offer.parts);
  }
  // An entry of its own: ranks use it where it lies, and get copies of the folders.
  if (!offer.environment.empty()) {
    interpreter_ = offer.interpreter;
    environment_ = std::make_unique<BundleStaging>(source, share_.environment);
    const auto more = environment_->find_missing(offer.environment);
    missing.insert(missing.end(), more.begin(), more.end());
  }
  return missing;
}

// A virtual environment runs the Python that its links lead to. They lead out of it, which nothing
// that is sent may; so they are made here, beside what was sent.
std::optional<Failure> Staging::place_environment() const {
  const std::string root = environment_->root();
  if (root.empty()) return protocol_failure("an order before all parts of an environment");
  if (interpreter_.empty()) return std::nullopt;
  const std::string program = interpreter_.substr(interpreter_.rfind('/') + 1);
  for (const std::string& name : {std::string("python"), std::string("python3"), program}) {
    const std::string link = root + "/bin/" + name;
    if (::symlink(interpreter_.c_str(), link.c_str()) == 0 || errno == EEXIST) continue;
    return ship_failure(errno_error(errno, "creating " + link));
  }
  return std::nullopt;
}

// Copies, which are the job's own: what ranks write must not reach the cache. An environment is too
// large for that; nobody may write to its files.
std::optional<Failure> Staging::place_tree() {
  if (environment_) {
    if (auto failure = place_environment()) return failure;
  }
  if (!tree_) return std::nullopt;
  if (tree_->root().empty()) return protocol_failure("an order before all parts of a folder");
  const auto path = job_directory();
  if (!path) return ship_failure(path.error());
  const Status copied = copy_bundle(tree_->root(), *path);
  if (!copied) return ship_failure(copied.error());
  return std::nullopt;
}

std::optional<Failure> Staging::on_part(std::string_view payload) {
  if (in_progress()) return protocol_failure("a part inside another delivery");
  auto part = decode_bundle_part(payload);
  if (!part) return protocol_failure(part.error().message);
  for (BundleStaging* const each : {&runtime_, tree_.get(), environment_.get()}) {
    if (each == nullptr || !each->lacks(part->hash)) continue;
    receiving_ = each;
    return each->begin_part(std::move(*part));
  }
  return protocol_failure("a part that it has not asked for");
}

// A shipped file goes through the same checks as a bundle's file.
std::optional<Failure> Staging::on_ship_file(std::string_view payload) {
  if (in_progress()) return protocol_failure("a file inside another delivery");
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
  auto unpacker =
      FileUnpacker::create(std::move(directory), *path, {std::move(entry)}, file->packed_sha256);
  if (!unpacker) return ship_failure(unpacker.error());
  shipped_ = std::move(*unpacker);
  return std::nullopt;
}

std::optional<Failure> Staging::on_data(std::string bytes) {
  if (receiving_ != nullptr) return receiving_->write(std::move(bytes));
  if (!shipped_) return protocol_failure("data without a delivery");
  const Status written = shipped_->write(bytes);
  if (!written) return ship_failure(written.error());
  return std::nullopt;
}

std::optional<Failure> Staging::on_data_end() {
  if (receiving_ != nullptr) return std::exchange(receiving_, nullptr)->end_part();
  if (!shipped_) return protocol_failure("the end of a delivery that had not begun");
  const Status finished = shipped_->finish();
  shipped_.reset();
  if (!finished) return ship_failure(finished.error());
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

void Staging::renew_marks() const {
  runtime_.renew_marks();
  if (tree_) tree_->renew_marks();
  if (environment_) environment_->renew_marks();
}

// To be called while our marks stand, so that what this job has used stays for the next one. What
// cannot be removed is no failure of the job.
void Staging::keep_limits() const {
  if (!source_.limits.max_age && !source_.limits.max_bytes) return;
  const CleanRequest request{source_.limits, false, true, Clock::now() + kCleaningTime};
  for (const std::string& path : cache_directories_) (void)clean_cache(path, request);
}

// Order matters: what uses a directory goes before the directory.
void Staging::clean_up() {
  runtime_.end_use();
  if (tree_) tree_->end_use();
  if (environment_) environment_->end_use();
  shipped_.reset();
  directory_.reset();
  keep_limits();
  runtime_.release_marks();
  if (tree_) tree_->release_marks();
  if (environment_) environment_->release_marks();
  // Nothing but our mark may be left after cleaning.
  if (source_.cleans_cache) ::rmdir(source_.cache_directory.c_str());
}

}  // namespace hora::launcher
