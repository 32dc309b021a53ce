// SPDX-License-Identifier: Apache-2.0
// Any bytes may be a library or the loader's list of libraries. Names never hold a NUL, since the
// text that they come from ends at one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "launcher/machine/elf_dynamic.h"

namespace {

void check(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto read_at = [&bytes](std::uint64_t offset, void* into, std::size_t wanted) {
    if (offset > bytes.size() || wanted > bytes.size() - offset) return false;
    std::memcpy(into, bytes.data() + offset, wanted);
    return true;
  };
  const auto elf = hora::launcher::parse_elf_dynamic(read_at);
  if (elf) {
    for (const std::string& name : elf->needed) check(name);
  }
  if (const auto loader = hora::launcher::parse_elf_loader(read_at)) check(*loader);
  const hora::launcher::LoaderCache cache(bytes);
  for (const std::string& file : cache.files_of(bytes.substr(0, bytes.find('\0')))) check(file);
  for (const std::string& file : cache.files_of("a")) check(file);
  return 0;
}
