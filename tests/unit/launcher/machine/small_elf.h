// SPDX-License-Identifier: Apache-2.0
// The smallest file that a dynamic loader would take for a library.
#pragma once

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "launcher/machine/elf_dynamic.h"

namespace hora::launcher {

struct SmallElf {
  std::vector<std::string> needed = {};
  std::string run_path = {};
  std::vector<std::string> versions = {};  // "GLIBC_2.34"
  int machine = own_elf_machine();
  std::size_t lost_bytes = 0;  // at the end of its names
  std::string loader = {};     // not empty: it is an executable

  std::string bytes() const {
    std::string strings(1, '\0');
    const auto add = [&strings](const std::string& text) {
      const std::size_t at = strings.size();
      strings += text;
      strings += '\0';
      return at;
    };
    std::vector<Elf64_Dyn> entries;
    const auto entry = [&entries](Elf64_Sxword tag, std::size_t value) {
      Elf64_Dyn each{};
      each.d_tag = tag;
      each.d_un.d_val = value;
      entries.push_back(each);
    };
    for (const std::string& name : needed) entry(DT_NEEDED, add(name));
    if (!run_path.empty()) entry(DT_RUNPATH, add(run_path));
    std::vector<Elf64_Vernaux> names(versions.size());
    for (std::size_t i = 0; i < versions.size(); ++i) {
      names[i].vna_name = static_cast<Elf64_Word>(add(versions[i]));
      names[i].vna_next = i + 1 < versions.size() ? sizeof(Elf64_Vernaux) : 0;
    }
    Elf64_Verneed file{};
    file.vn_cnt = static_cast<Elf64_Half>(versions.size());
    file.vn_aux = sizeof file;
    const std::size_t loader_at = strings.size();
    if (!loader.empty()) add(loader);
    const std::size_t versions_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
    const std::size_t strings_at = versions_at + sizeof file + names.size() * sizeof(Elf64_Vernaux);
    const std::size_t entries_at = strings_at + strings.size();
    if (!versions.empty()) entry(DT_VERNEED, kBase + versions_at);
    entry(DT_STRTAB, kBase + strings_at);
    entry(DT_STRSZ, strings.size() - lost_bytes);
    entry(DT_NULL, 0);

    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 3;
    Elf64_Phdr loaded{};
    loaded.p_type = PT_LOAD;
    loaded.p_vaddr = kBase;
    loaded.p_filesz = entries_at + entries.size() * sizeof(Elf64_Dyn);
    Elf64_Phdr dynamic{};
    dynamic.p_type = PT_DYNAMIC;
    dynamic.p_offset = entries_at;
    dynamic.p_filesz = entries.size() * sizeof(Elf64_Dyn);

    Elf64_Phdr interpreter{};
    if (!loader.empty()) {
      interpreter.p_type = PT_INTERP;
      interpreter.p_offset = strings_at + loader_at;
      interpreter.p_filesz = loader.size() + 1;
    }

    std::string out;
    const auto append = [&out](const void* from, std::size_t size) {
      out.append(static_cast<const char*>(from), size);
    };
    append(&header, sizeof header);
    append(&loaded, sizeof loaded);
    append(&dynamic, sizeof dynamic);
    append(&interpreter, sizeof interpreter);
    append(&file, sizeof file);
    append(names.data(), names.size() * sizeof(Elf64_Vernaux));
    out += strings;
    append(entries.data(), entries.size() * sizeof(Elf64_Dyn));
    return out;
  }

 private:
  static constexpr std::size_t kBase = 0x1000;  // addresses are not offsets
};

inline ReadAt reader_of(const std::string& bytes) {
  return [&bytes](std::uint64_t offset, void* into, std::size_t size) {
    if (offset > bytes.size() || size > bytes.size() - offset) return false;
    std::memcpy(into, bytes.data() + offset, size);
    return true;
  };
}

}  // namespace hora::launcher
