// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/pack_module.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "collectives/backends/nccl/pack_kernels.h"

// The assembler embeds the files, so that the module has none to find at run time. PTX is text and
// ends with a zero.
#define HORA_EMBED(name, file)                                     \
  __asm__(                                                         \
      ".section .rodata\n"                                         \
      ".balign 64\n" #name                                         \
      ":\n"                                                        \
      ".incbin \"" file                                            \
      "\"\n"                                                       \
      ".byte 0\n"                                                  \
      ".previous\n");                                              \
  /* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration. */ \
  extern "C" const char name[] __attribute__((visibility("hidden")))

HORA_EMBED(hora_pack_kernels_code, HORA_PACK_CODE);
HORA_EMBED(hora_pack_kernels_ptx, HORA_PACK_PTX);

namespace hora::collectives::nccl {

// Two images, because no single one serves all systems: machine code needs no compiler in the
// driver but a driver as new as ours and a GPU that our compiler knew; old PTX needs neither, but
// the driver has to compile it.

namespace {

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

std::span<const PackImage> pack_images() {
  static const std::array<PackImage, 2> images = {{
      {"machine code", hora_pack_kernels_code, HORA_PACK_CODE_DRIVER},
      {"PTX", hora_pack_kernels_ptx, 11000},
  }};
  return images;
}

std::string why_not_asked(const PackImage& image, int driver_version) {
  if (driver_version >= image.oldest_driver) return "";
  return "it is for CUDA " + cuda_version(image.oldest_driver) + ", and the driver for " +
         cuda_version(driver_version);
}

// Which image works is known only when the driver has tried it: nothing else shows whether it has
// the compiler for PTX, or whether machine code for this GPU is among ours. So all refusals are
// kept.

namespace {

// Indexed by hora_dtype; a bool is a byte.
constexpr const char* kSuffixes[kDtypeCount] = {"u8",  "i8",  "u16", "i16", "i32", "i64",
                                                "f16", "f32", "f64", "u8",  "bf16"};
constexpr unsigned kMostBlocks = 64;  // per copy; the kernel's loop does the rest

}  // namespace

const PackModule* PackModule::on(int device, const Cuda& cuda, std::string& why_not) {
  struct Loaded {
    std::unique_ptr<const PackModule> module;
    std::string why_not;
  };
  // Shared by all process sets, and kept as long as the primary context: until the process ends.
  static std::mutex mutex;
  static auto* const loaded = new std::map<int, Loaded>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, is_new] = loaded->try_emplace(device);
  if (is_new) found->second.module = load(cuda, found->second.why_not);
  why_not = found->second.why_not;
  return found->second.module.get();
}

std::unique_ptr<const PackModule> PackModule::load(const Cuda& cuda, std::string& why_not) {
  int driver_version = 0;
  ErrorText error;
  if (!check(cuda, cuda.cuDriverGetVersion(&driver_version), "cuDriverGetVersion", error)) {
    why_not = error.text;
    return nullptr;
  }
  for (const PackImage& image : pack_images()) {
    std::string refusal = why_not_asked(image, driver_version);
    if (refusal.empty()) {
      std::unique_ptr<PackModule> module(new PackModule(cuda));
      if (module->take(image.data, error)) return module;
      refusal = error.text;
    }
    why_not += (why_not.empty() ? "" : "; ") + std::string(image.name) + ": " + refusal;
  }
  return nullptr;
}

// The driver may put off the work until a function is asked for, so its refusal comes then.
bool PackModule::take(const void* image, ErrorText& error) {
  if (!check(cuda_, cuda_.cuModuleLoadData(&module_, image), "cuModuleLoadData", error)) {
    module_ = nullptr;
    return false;
  }
  for (std::size_t dtype = 0; dtype < kernels_.size(); ++dtype) {
    const std::string name = std::string(kCopyKernel) + kSuffixes[dtype];
    if (!check(cuda_, cuda_.cuModuleGetFunction(&kernels_[dtype], module_, name.c_str()),
               "cuModuleGetFunction", error)) {
      return false;
    }
  }
  return true;
}

PackModule::~PackModule() {
  if (module_ != nullptr) cuda_.cuModuleUnload(module_);
}

// One launch copies up to kMostCopies tensors: block row y does copy y.
bool PackModule::copy(CUstream stream, hora_dtype dtype, const std::vector<Copy>& copies,
                      double factor, std::int64_t divisor, ErrorText& error) const {
  for (std::size_t first = 0; first < copies.size(); first += kMostCopies) {
    const std::size_t count = std::min<std::size_t>(kMostCopies, copies.size() - first);
    CopyTable table = {};
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Copy& each = copies[first + i];
      table.from[i] = each.from;
      table.to[i] = each.to;
      table.count[i] = each.count;
      longest = std::max(longest, each.count);
    }
    // A launch without blocks is an error.
    if (longest == 0) continue;
    void* arguments[] = {&table, &factor, &divisor};
    // All copies of a launch get as many blocks as the longest one needs.
    const std::int64_t wanted = (longest + kThreadsPerBlock - 1) / kThreadsPerBlock;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(wanted, kMostBlocks));
    if (!check(cuda_,
               cuda_.cuLaunchKernel(kernels_[dtype], blocks, static_cast<unsigned>(count), 1,
                                    kThreadsPerBlock, 1, 1, 0, stream, arguments, nullptr),
               "cuLaunchKernel", error)) {
      return false;
    }
  }
  return true;
}

}  // namespace hora::collectives::nccl
