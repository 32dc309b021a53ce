// SPDX-License-Identifier: Apache-2.0
// NVTX is headers alone. At the first call they load the library that a tool has named in the
// environment of the process (NVTX_INJECTION64_PATH); without one every call does nothing.
#include "collectives/trace/nvtx_ranges.h"

#include <mutex>

#ifdef HORA_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace hora::collectives {

namespace {

#ifdef HORA_HAVE_NVTX
// The first call of NVTX looks for the tool, and is not to be made by two threads.
void* open_domain() {
  static std::mutex first;
  const std::lock_guard<std::mutex> lock(first);
  return nvtxDomainCreateA("Hora");
}

std::uint64_t start_range(void* domain, const char* text, std::int64_t bytes) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = text;
  // Reports show it as the size of the message.
  range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  range.payload.llValue = bytes;
  return nvtxDomainRangeStartEx(static_cast<nvtxDomainHandle_t>(domain), &range);
}

// Start and end rather than push and pop: operations of one thread overlap.
void end_range(void* domain, std::uint64_t range) {
  nvtxDomainRangeEnd(static_cast<nvtxDomainHandle_t>(domain), range);
}
#else  // as if no tool listened
void* open_domain() { return nullptr; }
std::uint64_t start_range(void*, const char*, std::int64_t) { return 0; }
void end_range(void*, std::uint64_t) {}
#endif

// By these names scripts pick the ranges of Horovod out of a report, and sum them up; the names of
// tensors would make each a sum of its own.
std::string text_of(const Request& request, bool with_name) {
  std::string text = "Horovod";
  if (request.group_size > 1) text += "Grouped";
  std::string action(action_name(request.action));
  action.front() = static_cast<char>(action.front() - 'a' + 'A');
  text += action;
  if (with_name) text += " " + request.name;
  return text;
}

}  // namespace

std::unique_ptr<NvtxRanges> NvtxRanges::open() {
  void* const domain = open_domain();
  if (domain == nullptr) return nullptr;
  return std::unique_ptr<NvtxRanges>(new NvtxRanges(domain));
}

void NvtxRanges::taken(const Request& request, bool with_name) {
  if (!moves_tensors(request.action)) return;
  const Id range = start_range(domain_, text_of(request, with_name).c_str(), tensor_bytes(request));
  // Names are unique among the operations of a set that are under way.
  open_[{request.process_set, request.name}] = range;
}

void NvtxRanges::agreed(std::span<const Response* const> responses) {
  for (const Response* response : responses) {
    if (response->status != HORA_OK) end(take_open(response->agreed));
  }
}

// Several steps run at once, each at its place; the end of a step names its place alone.
void NvtxRanges::step_begins(int place, std::span<const Response* const> step) {
  const auto at = static_cast<std::size_t>(place);
  if (running_.size() <= at) running_.resize(at + 1);
  for (const Response* response : step) running_[at].push_back(take_open(response->agreed));
}

void NvtxRanges::step_ends(int place) {
  const auto at = static_cast<std::size_t>(place);
  if (at >= running_.size()) return;
  for (const Id range : std::exchange(running_[at], {})) end(range);
}

void NvtxRanges::end_all() {
  for (const auto& [key, range] : std::exchange(open_, {})) end(range);
  for (std::size_t place = 0; place < running_.size(); ++place) step_ends(static_cast<int>(place));
}

// 0: there is none, as this rank has joined.
NvtxRanges::Id NvtxRanges::take_open(const Request& agreed) {
  const auto node = open_.extract({agreed.process_set, agreed.name});
  return node.empty() ? 0 : node.mapped();
}

void NvtxRanges::end(Id range) {
  if (range != 0) end_range(domain_, range);
}

}  // namespace hora::collectives
