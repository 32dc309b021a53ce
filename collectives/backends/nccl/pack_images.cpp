// SPDX-License-Identifier: Apache-2.0
// Two images, because no single one serves everybody: machine code needs no compiler in the driver
// but a driver as new as ours and a GPU that our compiler knew; old PTX needs neither, but the
// driver has to compile it.  [pure]
#include "collectives/backends/nccl/pack_images.h"

#include <array>

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

}  // namespace hora::collectives::nccl
