// What a launcher sends before the order: the bundle, and files for the job. One at a time: a
// header, data, an end. Every method's answer is nothing, or the failure that ends the job.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/bundle_cache.h"
#include "launcher/agent/file_unpacker.h"
#include "launcher/agent/job_directory.h"
#include "launcher/agent/shim.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class Staging {
 public:
  // `local_bundle`, when not empty, is the bundle, used where it lies.
  Staging(std::string host, std::string cache_directory, std::string local_bundle,
          ShimState& share);

  // Looks whether the bundle is here. A cache that cannot be used is no failure before it is
  // needed.
  bool have_bundle(const std::string& hash);
  // Where the bundle is; empty: not here.
  const std::string& bundle_root() const { return bundle_root_; }

  std::optional<Failure> on_bundle(std::string_view payload);
  std::optional<Failure> on_ship_file(std::string_view payload);
  std::optional<Failure> on_data(std::string_view bytes);
  std::optional<Failure> on_data_end();
  bool in_progress() const { return arrival_ || shipped_; }

  // The job's own folder, made when first asked for.
  Result<std::string> job_directory();
  // Empty when nobody asked.
  std::string job_directory_if_any() const { return directory_ ? directory_->path() : ""; }

  // Removes the job's folder and whatever is unfinished.
  void clean_up();

 private:
  Failure cache_failure(const Error& error) const;
  Failure ship_failure(const Error& error) const;
  Failure protocol_failure(const std::string& what) const;
  Status open_cache();

  std::string host_;
  std::string cache_directory_;
  std::string bundle_root_;
  ShimState& share_;
  std::optional<BundleCache> cache_;
  std::unique_ptr<BundleCache::Arrival> arrival_;
  std::optional<JobDirectory> directory_;
  std::unique_ptr<FileUnpacker> shipped_;
};

}  // namespace hora::launcher
