// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/host_facts.h"

#include <arpa/inet.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "rendezvous/base/machine.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// Where every glibc of this architecture has its loader: the path is a part of the ABI.
#if defined(__x86_64__)
constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
constexpr const char* kMuslLoader = "/lib/ld-musl-x86_64.so.1";
#elif defined(__aarch64__)
constexpr const char* kLoader = "/lib/ld-linux-aarch64.so.1";
constexpr const char* kMuslLoader = "/lib/ld-musl-aarch64.so.1";
#else
#error "where does glibc have its loader on this architecture?"
#endif

// Against damaged files; a real libc.so.6 has about 70 sections and 30 KiB of names.
constexpr std::size_t kMostSections = 4096;
constexpr std::size_t kMostNames = 1 << 20;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool read_at(const os::Fd& file, std::uint64_t offset, void* into, std::size_t size) {
  return offset <= INT64_MAX &&
         ::pread(file.get(), into, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// glibc defines a version for each release that brought a symbol, and nearly each did. 0: none.
int newest_release(std::string_view names) {
  constexpr std::string_view kPrefix = "GLIBC_2.";
  int newest = 0;
  for (std::size_t at = names.find(kPrefix); at != std::string_view::npos;
       at = names.find(kPrefix, at + 1)) {
    int release = 0;
    for (std::size_t i = at + kPrefix.size();
         i < names.size() && names[i] >= '0' && names[i] <= '9' && release < 1000; ++i) {
      release = release * 10 + (names[i] - '0');
    }
    newest = std::max(newest, release);
  }
  return newest;
}

// By pieces: the names are larger than all else that the agent reads, and need no memory of their
// own.
int newest_release_in(const os::Fd& file, std::uint64_t offset, std::uint64_t size) {
  constexpr std::size_t kLongest = 32;  // of a version's name, at the end of a piece
  std::array<char, 4096> piece;
  int newest = 0;
  for (std::uint64_t done = 0; done < size;) {
    const auto count = std::min<std::uint64_t>(size - done, piece.size());
    if (!read_at(file, offset + done, piece.data(), count)) return 0;
    newest = std::max(newest, newest_release({piece.data(), count}));
    if (count < piece.size()) break;
    done += count - kLongest;
  }
  return newest;
}

// Uses the names of the versions that a library defines, which are among those of its symbols.
int newest_release_of(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file.valid() || !read_at(file, 0, &header, sizeof header) ||
      header.e_shnum > kMostSections) {
    return 0;
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read_at(file, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) {
    return 0;
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_GNU_verdef || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    return newest_release_in(file, names.sh_offset,
                             std::min<std::uint64_t>(names.sh_size, kMostNames));
  }
  return 0;
}

}  // namespace

std::string c_library(const std::string& root) {
  const std::string loader = root + kLoader;
  if (!exists(loader)) {
    if (exists(root + kMuslLoader)) return "musl";
    // These distributions have a glibc of their own in each program's dependencies.
    return exists(root + "/nix/store") || exists(root + "/gnu/store") ? "" : "none";
  }
  // libc.so.6 lies next to the loader that this link leads to, or where distributions put it.
  std::vector<std::string> folders{root + "/lib64", root + "/lib/x86_64-linux-gnu",
                                   root + "/lib/aarch64-linux-gnu", root + "/usr/lib64",
                                   root + "/usr/lib"};
  char real[PATH_MAX];
  if (::realpath(loader.c_str(), real) != nullptr) {
    const std::string_view path(real);
    folders.insert(folders.begin(), std::string(path.substr(0, path.rfind('/'))));
  }
  for (const std::string& folder : folders) {
    const int release = newest_release_of(folder + "/libc.so.6");
    if (release > 0) return "glibc 2." + std::to_string(release);
  }
  return {};
}

// The facts about its host that the agent sends to the launcher. The agent is a static program, so
// they come from files and system calls rather than from libraries.

namespace {

std::string read_line(const std::string& path) {
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::array<char, 512> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return {};
  const std::string_view bytes(text.data(), static_cast<std::size_t>(got));
  return std::string(bytes.substr(0, bytes.find('\n')));
}

// The fields of this user's line in /etc/passwd. In a static program, getpwuid() would load the
// host's name services.
std::vector<std::string> passwd_fields() {
  const std::string uid = std::to_string(::getuid());
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/etc/passwd", "re"), std::fclose);
  if (!file) return {};
  std::array<char, 1024> line;
  while (std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    std::vector<std::string> fields(1);
    for (const char* c = line.data(); *c != '\0' && *c != '\n'; ++c) {
      if (*c == ':') {
        fields.emplace_back();
      } else {
        fields.back().push_back(*c);
      }
    }
    if (fields.size() >= 7 && fields[2] == uid) return fields;
  }
  return {};
}

InterfaceInfo info_of(const net::Interface& item) {
  InterfaceInfo info;
  info.name = item.name;
  info.address = format_address(item.address);
  info.prefix_length = item.prefix_length;
  info.up = item.up;
  info.loopback = item.loopback;
  info.virtual_bridge = item.virtual_bridge;
  info.speed_mbps = item.speed_mbps;
  info.mtu = item.mtu;
  return info;
}

int count_gpu_devices() {
  int count = 0;
  const auto count_in = [&count](const char* path, std::string_view prefix) {
    for (const std::string& each : os::names_in(path)) {
      // "nvidia0" is a device; "nvidiactl" and "nvidia-uvm" are not. In /proc each GPU is a PCI
      // address.
      std::string_view name = each;
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      const bool digits = prefix.empty()
                              ? name.find(':') != std::string_view::npos
                              : !name.empty() && std::isdigit(name.front()) != 0 &&
                                    name.find_first_not_of("0123456789") == std::string_view::npos;
      if (digits) ++count;
    }
  };
  // Device nodes show what a container may use; the driver shows what the machine has.
  count_in("/dev", "nvidia");
  if (count == 0) count_in("/proc/driver/nvidia/gpus", "");
  return count;
}

}  // namespace

// Two containers on one machine share the boot id; the network namespace distinguishes them, and
// decides whether they reach each other by loopback.
std::string machine_id() {
  static const std::string known = [] {
    std::string id = read_line("/proc/sys/kernel/random/boot_id");
    struct stat info {};
    if (!id.empty() && ::stat("/proc/self/ns/net", &info) == 0) {
      id += ":" + std::to_string(info.st_ino);
    }
    return id;
  }();
  return known;
}

std::string user_name() {
  const auto fields = passwd_fields();
  if (!fields.empty()) return fields[0];
  const char* user = std::getenv("USER");
  return user != nullptr ? user : "uid " + std::to_string(::getuid());
}

std::string home_directory() {
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return home;
  const auto fields = passwd_fields();
  return fields.empty() ? "" : fields[5];
}

int usable_cpus() {
  // cpu_set_t ends at 1,024 CPUs; the call fails on a larger machine.
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // more than 1,024 CPUs
}

int count_gpus() {
  static const int count = count_gpu_devices();  // asked several times, and /dev may be large
  return count;
}

std::int64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::int64_t>(info.st_ino) : 0;
}

// The kernel gives the first PID namespace a fixed inode number.
bool in_first_pid_namespace() {
  constexpr std::int64_t kFirst = 0xEFFFFFFC;  // PROC_PID_INIT_INO of the kernel
  return pid_namespace() == kFirst;
}

std::vector<InterfaceInfo> host_interfaces() {
  std::vector<InterfaceInfo> found;
  const auto interfaces = net::list_interfaces();
  if (!interfaces) return found;
  for (const net::Interface& item : *interfaces) {
    // A link-local address needs a scope, which only holds on one host.
    if (item.address.v6 && item.address.is_link_local()) continue;
    found.push_back(info_of(item));
  }
  return found;
}

std::int64_t wall_clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Hello describe_machine() {
  Hello hello;
  hello.hostname = net::host_name();
  hello.boot_id = machine_id();
  hello.pid_namespace = pid_namespace();
  hello.home = home_directory();
  hello.user = user_name();
  hello.machine = own_machine();
  hello.c_library = c_library();
  hello.cpus = usable_cpus();
  hello.gpus = count_gpus();
  hello.interfaces = host_interfaces();
  return hello;
}

// Binds without listening: the port stays taken while the holder is open, and SO_REUSEADDR lets the
// rank bind it.
ReservedPort reserve_port() {
  ReservedPort reserved;
  reserved.holder = os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!reserved.holder.valid()) return reserved;
  const int on = 1;
  ::setsockopt(reserved.holder.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  if (::bind(reserved.holder.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(reserved.holder.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    reserved.holder.reset();
    return reserved;
  }
  reserved.port = ntohs(address.sin_port);
  return reserved;
}

}  // namespace hora::launcher
