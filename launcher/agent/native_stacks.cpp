// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/native_stacks.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "launcher/agent/stack_text.h"
#include "launcher/process/process_table.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/stack_record.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/process_end.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

// Finds function names for code offsets by reading an ELF file's symbol tables. The file may be
// anything that a rank has mapped, so every number in it is checked before it is used.

namespace {

// Limits against damaged files; the largest real libraries have a few million symbols.
constexpr std::size_t kMostHeaders = 4096;
constexpr std::size_t kSymbolsAtOnce = 16 * 1024;
constexpr std::uint64_t kMostSymbols = 8'000'000;
constexpr std::size_t kMostNameBytes = 1000;

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  // Reads whole items or nothing; a short file yields nothing.
  template <typename Item>
  std::optional<std::vector<Item>> read(std::uint64_t offset, std::size_t count) const {
    std::vector<Item> items(count);
    const std::size_t bytes = count * sizeof(Item);
    if (!fd_.valid() || offset > INT64_MAX ||
        ::pread(fd_.get(), items.data(), bytes, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(bytes)) {
      return std::nullopt;
    }
    return items;
  }

  std::string text_at(std::uint64_t offset) const {
    char bytes[kMostNameBytes];
    if (offset > INT64_MAX) return {};
    const ssize_t got = ::pread(fd_.get(), bytes, sizeof bytes, static_cast<off_t>(offset));
    return got > 0 ? std::string(bytes, ::strnlen(bytes, static_cast<std::size_t>(got)))
                   : std::string();
  }

 private:
  os::Fd fd_;
};

// Symbols count in virtual addresses, mappings in file offsets; the segments translate.
struct Lookup {
  std::uint64_t address = 0;  // as the file's symbols count
  std::uint64_t offset = 0;
  std::uint64_t name_at = 0;  // in the file; 0: not found yet
};

// Translates the offsets by the file's segments, and returns the results in order of address.
std::vector<Lookup> to_addresses(const std::vector<ElfW(Phdr)>& segments,
                                 const std::vector<std::uint64_t>& offsets) {
  std::vector<Lookup> wanted;
  for (const std::uint64_t offset : offsets) {
    for (const auto& segment : segments) {
      if (segment.p_type != PT_LOAD || offset < segment.p_offset ||
          offset - segment.p_offset >= segment.p_filesz) {
        continue;
      }
      wanted.push_back({segment.p_vaddr + (offset - segment.p_offset), offset, 0});
      break;
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const Lookup& a, const Lookup& b) { return a.address < b.address; });
  return wanted;
}

// Reads the table in blocks, and remembers only where a name is: names are read for the hits alone.
void look_through(const ElfFile& file, const ElfW(Shdr) & table, const ElfW(Shdr) & names,
                  std::vector<Lookup>& wanted) {
  const std::uint64_t count =
      std::min<std::uint64_t>(table.sh_size / sizeof(ElfW(Sym)), kMostSymbols);
  for (std::uint64_t first = 0; first < count; first += kSymbolsAtOnce) {
    const auto some = file.read<ElfW(Sym)>(
        table.sh_offset + first * sizeof(ElfW(Sym)),
        static_cast<std::size_t>(std::min<std::uint64_t>(kSymbolsAtOnce, count - first)));
    if (!some) return;
    for (const auto& symbol : *some) {
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_size == 0 || symbol.st_shndx == SHN_UNDEF ||
          (type != STT_FUNC && type != STT_GNU_IFUNC)) {
        continue;
      }
      // All wanted addresses inside the symbol's range take its name; the first symbol found wins.
      auto at =
          std::lower_bound(wanted.begin(), wanted.end(), symbol.st_value,
                           [](const Lookup& w, std::uint64_t value) { return w.address < value; });
      for (; at != wanted.end() && at->address - symbol.st_value < symbol.st_size; ++at) {
        if (at->name_at == 0) at->name_at = names.sh_offset + symbol.st_name;
      }
    }
  }
}

}  // namespace

std::map<std::uint64_t, std::string> find_elf_symbols(const std::string& path,
                                                      const std::vector<std::uint64_t>& offsets) {
  const ElfFile file(path);
  const auto head = file.read<ElfW(Ehdr)>(0, 1);
  // Only files of the agent's own word size: the structures are those of this build.
  constexpr int kOurClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (!head || std::memcmp(head->front().e_ident, ELFMAG, SELFMAG) != 0 ||
      head->front().e_ident[EI_CLASS] != kOurClass || head->front().e_shnum > kMostHeaders ||
      head->front().e_phnum > kMostHeaders || head->front().e_shentsize != sizeof(ElfW(Shdr)) ||
      head->front().e_phentsize != sizeof(ElfW(Phdr))) {
    return {};
  }
  const auto segments = file.read<ElfW(Phdr)>(head->front().e_phoff, head->front().e_phnum);
  const auto sections = file.read<ElfW(Shdr)>(head->front().e_shoff, head->front().e_shnum);
  if (!segments || !sections) return {};
  std::vector<Lookup> wanted = to_addresses(*segments, offsets);
  // The full table names static functions, too, but stripped libraries only have the dynamic one.
  for (const unsigned type : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (const auto& section : *sections) {
      if (section.sh_type != type || section.sh_link >= sections->size()) continue;
      look_through(file, section, (*sections)[section.sh_link], wanted);
    }
  }
  std::map<std::uint64_t, std::string> found;
  for (const Lookup& each : wanted) {
    if (each.name_at == 0) continue;
    if (std::string name = file.text_at(each.name_at); !name.empty())
      found[each.offset] = std::move(name);
  }
  return found;
}

std::string readable_symbol(const std::string& symbol) {
  int status = 0;
  char* plain = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string text = status == 0 && plain != nullptr ? plain : symbol;
  std::free(plain);
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t at = text.find(kUnnamed); at != std::string::npos; at = text.find(kUnnamed)) {
    text.erase(at, kUnnamed.size());
  }
  // Cut the argument list, but keep "operator()" and everything inside <> and {}.
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '{') ++depth;
    if ((text[i] == '>' || text[i] == '}') && depth > 0) --depth;
    const bool call_operator = i >= 8 && text.compare(i - 8, 8, "operator") == 0;
    if (text[i] == '(' && depth == 0 && i > 0 && !call_operator) {
      text.resize(i);
      break;
    }
  }
  constexpr std::size_t kMost = 120;
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

// A handler in libhora writes the program counters of each thread into shared memory when the agent
// signals it. The agent then needs names for them, which a forked child looks up: files may be huge
// or on a dead file system, and the agent must not wait for them.

namespace {

// Limits against a process that maps or answers without end.
constexpr std::size_t kMostProcText = 4 * 1024 * 1024;
constexpr std::size_t kMostAnswer = 4 * 1024 * 1024;

// The process may end at any moment; a file that is gone reads as empty.
std::string proc_text(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[16 * 1024];
  while (file.valid() && text.size() < kMostProcText) {
    const ssize_t got = ::read(file.get(), bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

// One line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::string path;
};

// A line is "begin-end rwxp offset dev inode path"; only executable mappings matter.
std::vector<Mapping> code_of(pid_t pid) {
  std::vector<Mapping> found;
  const std::string maps = proc_text("/proc/" + std::to_string(pid) + "/maps");
  for (const std::string_view line : split(maps, '\n')) {
    Mapping one;
    const std::string text(line);
    char* at = nullptr;
    one.begin = std::strtoull(text.c_str(), &at, 16);
    if (*at != '-') continue;
    one.end = std::strtoull(at + 1, &at, 16);
    const std::string flags(
        at, std::min<std::size_t>(5, text.size() - static_cast<std::size_t>(at - text.c_str())));
    if (flags.size() < 5 || flags[3] != 'x') continue;
    one.offset = std::strtoull(at + 5, nullptr, 16);
    // Special mappings have names in brackets ([vdso]).
    const std::size_t path = text.find_first_of("/[");
    if (path != std::string::npos) one.path = text.substr(path);
    found.push_back(std::move(one));
  }
  return found;
}

const Mapping* find_mapping(const std::vector<Mapping>& code, std::uint64_t pc) {
  for (const Mapping& each : code) {
    if (pc >= each.begin && pc < each.end) return &each;
  }
  return nullptr;
}

using Stacks = std::vector<FlightRecords::NativeStack>;

// Runs in the child: everything that may take long. Each file is read once for all ranks.
std::map<pid_t, std::string> name_all(const std::map<pid_t, Stacks>& stacks,
                                      const std::map<pid_t, std::string>& python) {
  std::map<pid_t, std::vector<Mapping>> code;
  std::map<std::string, std::vector<std::uint64_t>> wanted;
  for (const auto& [pid, threads] : stacks) {
    code[pid] = code_of(pid);
    for (const auto& thread : threads) {
      for (const std::uint64_t pc : thread.pcs) {
        // The lookup needs offsets in the file; anonymous code (a JIT) has none.
        const Mapping* at = find_mapping(code[pid], pc);
        if (at != nullptr && !at->path.empty() && at->path[0] == '/') {
          wanted[at->path].push_back(pc - at->begin + at->offset);
        }
      }
    }
  }
  // The program counter is a return address in all frames but the first; names are good enough so.
  std::map<std::string, std::map<std::uint64_t, std::string>> names;
  for (const auto& [path, offsets] : wanted) names[path] = find_elf_symbols(path, offsets);
  std::map<pid_t, std::string> texts;
  for (const auto& [pid, threads] : stacks) {
    std::vector<NativeThread> readable;
    for (const auto& thread : threads) {
      const std::string name = proc_text("/proc/" + std::to_string(pid) + "/task/" +
                                         std::to_string(thread.tid) + "/comm");
      NativeThread one{thread.thread_id, std::string(trim(name)), {}};
      for (const std::uint64_t pc : thread.pcs) {
        const Mapping* at = find_mapping(code[pid], pc);
        if (at == nullptr) {
          one.frames.push_back({"", "", pc});
          continue;
        }
        NativeFrame frame{"", at->path.substr(at->path.rfind('/') + 1),
                          pc - at->begin + at->offset};
        const auto& known = names[at->path];
        if (const auto found = known.find(frame.offset); found != known.end())
          frame.function = readable_symbol(found->second);
        one.frames.push_back(std::move(frame));
      }
      readable.push_back(std::move(one));
    }
    const auto said = python.find(pid);
    texts[pid] = merge_stacks(said == python.end() ? std::string() : said->second, readable);
  }
  return texts;
}

}  // namespace

void NativeStacks::ask(FlightRecords& records, pid_t pid) {
  const int signal = os::stack_signal();
  const std::string folder = "/proc/" + std::to_string(pid);
  // A process that has executed another program has no handler; the signal would end it.
  if (!handles_signal(pid, signal)) return;
  const auto request = records.begin_stacks(pid);
  if (!request) return;
  PendingRequest& asked = asked_[pid];
  // A new request forgets the answers of the last one.
  asked = {*request, 0};
  std::vector<pid_t> threads = list_threads(pid).value_or(std::vector<pid_t>());
  std::sort(threads.begin(), threads.end());
  for (const pid_t thread : threads) {
    // A thread that blocks the signal would answer much later, into the wrong request.
    if (has_signal(proc_text(folder + "/task/" + std::to_string(thread) + "/status"), "SigBlk",
                   signal))
      continue;
    // The area has a slot for a fixed number of threads.
    if (asked.threads == rendezvous::kStackThreads) break;
    if (::syscall(SYS_tgkill, pid, thread, signal) == 0) ++asked.threads;
  }
}

bool NativeStacks::all_answered(const FlightRecords& records) const {
  return std::all_of(asked_.begin(), asked_.end(), [&](const auto& each) {
    return records.read_stacks(each.first, each.second.request).size() >= each.second.threads;
  });
}

void NativeStacks::name(const FlightRecords& records, const std::map<pid_t, std::string>& python,
                        Clock::time_point deadline,
                        std::function<void(std::map<pid_t, std::string>)> done) {
  stop();
  std::map<pid_t, Stacks> stacks;
  for (const auto& [pid, asked] : asked_) {
    Stacks threads = records.read_stacks(pid, asked.request);
    std::sort(threads.begin(), threads.end(),
              [](const auto& a, const auto& b) { return a.tid < b.tid; });
    if (!threads.empty()) stacks[pid] = std::move(threads);
  }
  asked_.clear();
  done_ = std::move(done);
  int ends[2];
  if (stacks.empty() || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return finish();
  pipe_ = os::Fd(ends[0]);
  os::Fd out(ends[1]);
  child_ = ::fork();
  if (child_ == 0) {
    // Close all inherited descriptors, so that a child that hangs keeps none of the agent's open (a
    // rank's pipe, say, whose end the agent waits for).
    const int only = out.release();
    ::syscall(SYS_close_range, 0U, static_cast<unsigned>(only - 1), 0U);
    ::syscall(SYS_close_range, static_cast<unsigned>(only + 1), ~0U, 0U);
    // The child may block on the pipe, while the agent's end must not.
    ::fcntl(only, F_SETFL, 0);
    std::string answer;
    for (const auto& [pid, text] : name_all(stacks, python)) {
      answer += std::to_string(pid) + " " + std::to_string(text.size()) + "\n" + text;
    }
    for (std::size_t written = 0; written < answer.size();) {
      const ssize_t count = ::write(only, answer.data() + written, answer.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      written += static_cast<std::size_t>(count);
    }
    ::_exit(kExitOk);
  }
  if (child_ < 0 || !loop_.watch(pipe_.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); }))
    return finish();
  timer_ = loop_.call_at(deadline, [this] {
    timer_ = 0;
    // The child's pipe is open, so the child is alive and the pid is its own. The agent's common
    // loop for children reaps it.
    ::kill(child_, SIGKILL);
    finish();
  });
}

void NativeStacks::on_readable() {
  char bytes[16 * 1024];
  while (true) {
    const ssize_t got = ::read(pipe_.get(), bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || answer_.size() > kMostAnswer) break;
    answer_.append(bytes, static_cast<std::size_t>(got));
  }
  std::string_view rest = answer_;
  while (!rest.empty()) {
    const std::size_t line = rest.find('\n');
    if (line == std::string_view::npos) break;
    const auto words = split(rest.substr(0, line), ' ');
    const auto pid = words.size() == 2 ? parse_int<pid_t>(words[0]) : std::nullopt;
    const auto size = words.size() == 2 ? parse_int<std::size_t>(words[1]) : std::nullopt;
    rest.remove_prefix(line + 1);
    if (!pid || !size || *size > rest.size()) break;
    texts_[*pid] = rest.substr(0, *size);
    rest.remove_prefix(*size);
  }
  finish();
}

// done may destroy this object, so it runs last.
void NativeStacks::finish() {
  stop();
  const auto done = std::exchange(done_, nullptr);
  if (done) done(std::exchange(texts_, {}));
}

// A child that still runs gets EPIPE or SIGPIPE at its next write and ends.
void NativeStacks::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
  if (pipe_.valid()) {
    loop_.unwatch(pipe_.get());
    pipe_.reset();
  }
  child_ = -1;
  answer_.clear();
}

}  // namespace hora::launcher
