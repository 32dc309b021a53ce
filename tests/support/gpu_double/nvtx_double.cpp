// SPDX-License-Identifier: Apache-2.0
// A tool that listens to NVTX, as NVTX_INJECTION64_PATH names one: it keeps the domains and ranges
// that it receives, for tests.
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include <nvtx3/nvToolsExt.h>

namespace {

std::mutex mutex;
std::map<nvtxRangeId_t, std::string> running;  // "Hora: HorovodAllreduce 40"
std::string ended;  // one line for each range, in the order of their ends
nvtxRangeId_t last = 0;

nvtxDomainHandle_t create_domain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}

nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  const std::lock_guard<std::mutex> lock(mutex);
  running[++last] = *reinterpret_cast<std::string*>(domain) + ": " + range->message.ascii + " " +
                    std::to_string(range->payload.llValue);
  return last;
}

void end(nvtxDomainHandle_t, nvtxRangeId_t range) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto node = running.extract(range);
  ended += (node.empty() ? "not open" : node.mapped()) + "\n";
}

template <typename Function>
void put(NvtxFunctionTable table, unsigned place, Function function) {
  *table[place] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" {

// Of this process; for tests.
__attribute__((visibility("default"))) const char* hora_double_ranges() {
  static std::string copy;
  const std::lock_guard<std::mutex> lock(mutex);
  copy = ended;
  for (const auto& [id, text] : running) copy += "open: " + text + "\n";
  return copy.c_str();
}

// NOLINTNEXTLINE(readability-identifier-naming): NVTX's own name.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
    return 0;
  }
  put(table, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  put(table, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  put(table, NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

}  // extern "C"
