// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/built_for.h"

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "rendezvous/contract/nccl_banner.h"

namespace hora::collectives::nccl {

namespace {

struct Question {
  std::uintptr_t function;
  int answer = 0;
};

// Of the file's bytes alone: what lies behind them in memory is zeros.
std::string_view constants_of(const dl_phdr_info& library, const ElfW(Phdr) & segment) {
  const bool is_constant = (segment.p_flags & PF_R) != 0 && (segment.p_flags & PF_W) == 0;
  if (segment.p_type != PT_LOAD || !is_constant) return {};
  return {reinterpret_cast<const char*>(library.dlpi_addr + segment.p_vaddr),
          std::min<std::size_t>(segment.p_filesz, kNcclBannerWithin)};
}

// Called for one library after the other, until it returns something else than 0.
int look(dl_phdr_info* library, std::size_t, void* data) {
  auto& question = *static_cast<Question*>(data);
  const auto* const begin = library->dlpi_phdr;
  const auto* const end = begin + library->dlpi_phnum;
  // The library that has the function, whatever its file is called: frameworks bring NCCL under
  // names of their own.
  const bool has_it = std::any_of(begin, end, [&](const ElfW(Phdr) & segment) {
    const std::uintptr_t start = library->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && question.function >= start &&
           question.function - start < segment.p_memsz;
  });
  if (!has_it) return 0;
  for (const auto* segment = begin; segment != end && question.answer == 0; ++segment) {
    question.answer = cuda_of_nccl(constants_of(*library, *segment));
  }
  return 1;
}

}  // namespace

int built_for(const void* function) {
  Question question{reinterpret_cast<std::uintptr_t>(function)};
  dl_iterate_phdr(look, &question);
  return question.answer;
}

}  // namespace hora::collectives::nccl
