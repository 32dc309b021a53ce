// SPDX-License-Identifier: Apache-2.0
#include "launcher/shipping/user_files.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "launcher/parts/bundle.h"
#include "launcher/parts/python_environment.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// "src" comes as a folder of that name, "src/" and "." as what is in them.
TreeRoot root_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "." || name == "..") return {path, ""};
  return {name.empty() && path.size() > 1 ? path.substr(0, path.find_last_not_of('/') + 1) : path,
          name};
}

// A project often has its environment in it, which goes its own way.
std::function<bool(const std::string&)> not_the_environment(const std::string& root,
                                                            const PythonEnvironment& environment) {
  const std::string above = os::real_path(root) + "/";
  if (!environment.folder.starts_with(above)) return {};
  return [inside = environment.folder.substr(above.size())](const std::string& path) {
    return path == inside;
  };
}

// One line, however many there are.
void report_left_out(const std::string& option, const std::vector<std::string>& left_out) {
  constexpr std::size_t kShown = 3;
  if (left_out.empty()) return;
  std::vector<std::string> shown = left_out;
  shown.resize(std::min(kShown, left_out.size()));
  std::string text = join(shown, ", ");
  if (left_out.size() > kShown) {
    text += " and " + std::to_string(left_out.size() - kShown) + " more";
  }
  os::log_warn("horarun", option + " leaves out what hosts could not use: " + text);
}

void report_outside(const PythonEnvironment& environment) {
  if (environment.outside.empty()) return;
  os::log_warn("horarun", "--ship-env: hosts will lack what lies outside of " + environment.path +
                              ": " + few_names(environment.outside) +
                              "; install it there without -e, or send its folder with --ship and "
                              "add that to PYTHONPATH");
}

// Hosts could not keep it next to the parts of other jobs.
void report_size(std::uint64_t bytes, const CacheLimits& limits) {
  if (!limits.max_bytes || bytes <= *limits.max_bytes) return;
  os::log_warn("horarun", "--ship-env: hosts keep its " + format_size(bytes) +
                              " until the next job without it ends, because --cache-max-size is " +
                              format_size(*limits.max_bytes));
}

}  // namespace

// The environment first: a project that is sent may hold it.
ShipFiles::ShipFiles(const JobSpec& spec, const std::string& memory_folder)
    : status_(pack_environment(spec, memory_folder)) {
  if (status_) status_ = pack(spec, memory_folder);
}

void ShipFiles::forget() const {
  for (const TreeMemory& each : memories_) each.forget();
}

Status ShipFiles::pack_environment(const JobSpec& spec, const std::string& memory_folder) {
  if (spec.ship_environment.empty()) return Ok{};
  auto environment = examine_environment(spec.ship_environment);
  if (!environment) return std::move(environment).error().with_context("--ship-env");
  memories_.emplace_back(memory_folder, "environment " + environment->folder);
  auto tree = read_environment_tree(*environment, memories_.back());
  if (!tree) return std::move(tree).error().with_context("--ship-env");
  report_left_out("--ship-env", tree->left_out);
  report_outside(*environment);
  report_size(tree->bytes, spec.cache_limits);
  environment_ = std::move(*environment);
  environment_tree_ = std::move(*tree);
  return Ok{};
}

std::string ShipFiles::options() const {
  if (!environment_) return "--ship";
  return tree_.parts.empty() ? "--ship-env" : "--ship and --ship-env";
}

const TreePart* ShipFiles::find_part(const std::string& hash) const {
  for (const UserTree* tree : {&tree_, &environment_tree_}) {
    for (const TreePart& part : tree->parts) {
      if (part.hash == hash) return &part;
    }
  }
  return nullptr;
}

Status ShipFiles::pack(const JobSpec& spec, const std::string& memory_folder) {
  const std::vector<std::string>& paths = spec.ship_files;
  // A folder that has another place in the tree is another tree.
  std::string about;
  std::vector<TreeRoot> roots;
  for (const std::string& path : paths) {
    if (os::is_folder(path)) {
      roots.push_back(root_of(path));
      about += "folder " + os::real_path(path) + " " + roots.back().prefix + "\n";
      if (environment_) roots.back().skips = not_the_environment(path, *environment_);
      continue;
    }
    auto frames = ship_file_frames(path);
    if (!frames) return std::move(frames).error();
    frames_.push_back(std::make_shared<const std::string>(std::move(frames->head)));
    frames_.push_back(std::make_shared<const std::string>(std::move(frames->data)));
  }
  if (roots.empty()) return Ok{};
  memories_.emplace_back(memory_folder, about);
  auto tree = read_user_tree(roots, spec.ship_max_bytes, memories_.back());
  if (!tree) return std::move(tree).error().with_context("--ship");
  for (const TreePart& part : tree->parts) {
    for (const PartFile& file : part.files) {
      const std::string top = file.file.path.substr(0, file.file.path.find('/'));
      const auto same = std::find_if(paths.begin(), paths.end(), [&top](const std::string& path) {
        return !os::is_folder(path) && path.substr(path.rfind('/') + 1) == top;
      });
      if (same == paths.end()) continue;
      return make_error(ErrorCode::kUsage,
                        "--ship: " + *same + " and " + file.source + " have the same name");
    }
  }
  report_left_out("--ship", tree->left_out);
  tree_ = std::move(*tree);
  return Ok{};
}

// A thread's post may run when the packer is gone, so threads and posts share what they need with
// it and hold it themselves. The parts belong to the job's files, which outlive the fleet.

namespace {

constexpr unsigned kMostThreads = 4;

}  // namespace

PartPacker::PartPacker(os::EventLoop& loop, Handler on_packed) : loop_(loop) {
  shared_->on_packed = std::move(on_packed);
}

PartPacker::~PartPacker() {
  {
    // A thread that has just looked at it, and is about to wait, would wait for ever.
    const std::lock_guard lock(shared_->mutex);
    shared_->state.over = true;
  }
  shared_->more.notify_all();
  for (std::thread& each : threads_) each.join();
}

void PartPacker::pack(const TreePart& part) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->waiting.push_back(&part);
  }
  shared_->more.notify_one();
  // None before it is needed: most jobs ship nothing, or nothing new.
  const unsigned most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  if (threads_.size() < most) {
    threads_.emplace_back([&loop = loop_, shared = shared_] { work(loop, shared); });
  }
}

void PartPacker::work(os::EventLoop& loop, const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::unique_lock lock(shared->mutex);
    shared->more.wait(lock, [&shared] { return shared->state.over || !shared->waiting.empty(); });
    if (shared->state.over) return;
    const TreePart& part = *shared->waiting.front();
    shared->waiting.pop_front();
    lock.unlock();
    auto frames = tree_part_frames(part, shared->state);
    // The loop may run this when the packer is gone.
    loop.post([shared, &part, frames = std::make_shared<Result<Frames>>(std::move(frames))] {
      if (!shared->state.over) shared->on_packed(part, std::move(*frames));
    });
  }
}

namespace {

constexpr std::size_t kPackedAtOnce = 4;
// Together with the parts that are being packed, this is about the memory that the launcher needs.
constexpr std::size_t kMostUnderWay = 128u << 20;

}  // namespace

TreeDelivery::TreeDelivery(os::EventLoop& loop, const ShipFiles* files, Handlers handlers)
    : files_(files),
      handlers_(std::move(handlers)),
      packer_(loop, [this](const TreePart& part, Result<PartPacker::Frames> frames) {
        on_packed(part, std::move(frames));
      }) {}

OfferTree TreeDelivery::offer(int host) {
  waiting_[host] = {};
  OfferTree offer;
  for (const TreePart& part : files_->tree().parts) offer.parts.push_back(part.hash);
  for (const TreePart& part : files_->environment_tree().parts) {
    offer.environment.push_back(part.hash);
  }
  const auto& environment = files_->environment();
  if (environment && environment->uses_host_python) offer.interpreter = environment->program;
  return offer;
}

void TreeDelivery::on_state(int host, const TreeState& state) {
  if (state.missing.empty()) {
    waiting_.erase(host);
    return;
  }
  waiting_[host] = {/*answered=*/true, state.missing.size()};
  for (const std::string& hash : state.missing) {
    // Hosts that ask while it is packed get the same frames.
    const auto packing = packing_.find(hash);
    (packing == packing_.end() ? to_pack_[hash] : packing->second).push_back(host);
  }
  pack_more();
}

bool TreeDelivery::awaits_answer(int host) const {
  const auto found = waiting_.find(host);
  return found != waiting_.end() && !found->second.answered;
}

// Called again whenever a part was packed, the queue of a link has become short, or the hosts have
// passed on what they share.
void TreeDelivery::pack_more() {
  while (!to_pack_.empty() && packing_.size() < kPackedAtOnce &&
         handlers_.bytes_under_way() < kMostUnderWay) {
    auto next = to_pack_.extract(to_pack_.begin());
    const TreePart* part = files_->find_part(next.key());
    packing_.insert(std::move(next));
    packer_.pack(*part);
  }
}

void TreeDelivery::on_packed(const TreePart& part, Result<PartPacker::Frames> frames) {
  std::vector<int> hosts = std::move(packing_.extract(part.hash).mapped());
  // The first ones get it from here, and are the first to serve it: others for each part.
  const auto first = static_cast<std::ptrdiff_t>(packed_++ % hosts.size());
  std::rotate(hosts.begin(), hosts.begin() + first, hosts.end());
  if (!frames) {
    // The job cannot start any more, so nothing else needs to be packed.
    to_pack_.clear();
    files_->forget();
    return handlers_.on_unreadable(hosts.front(), std::move(frames).error());
  }
  for (const int host : hosts) {
    const auto waiting = waiting_.find(host);
    if (waiting == waiting_.end()) continue;  // it is lost
    if (--waiting->second.parts == 0) waiting_.erase(waiting);
    handlers_.deliver(host, part.hash, *frames);
  }
  pack_more();
}

}  // namespace hora::launcher
