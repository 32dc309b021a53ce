// SPDX-License-Identifier: Apache-2.0
// libssh, which horarun loads from libhora_ssh.so when it reaches the first host over ssh. The
// module has libssh and the OpenSSL that this needs: for a job on this machine, their 25,000
// relocations and what they do at each start would be most of what horarun itself costs.
//
// The border is a table of libssh's own functions, under their own names: libssh().ssh_new(). The
// types are libssh's.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include "rendezvous/base/result.h"

// Every function of libssh that horarun calls.
#define HORA_LIBSSH_FUNCTIONS(EACH)  \
  EACH(ssh_channel_free)             \
  EACH(ssh_channel_get_exit_status)  \
  EACH(ssh_channel_new)              \
  EACH(ssh_channel_open_session)     \
  EACH(ssh_channel_poll)             \
  EACH(ssh_channel_request_exec)     \
  EACH(ssh_channel_send_eof)         \
  EACH(ssh_channel_write)            \
  EACH(ssh_clean_pubkey_hash)        \
  EACH(ssh_connect)                  \
  EACH(ssh_free)                     \
  EACH(ssh_get_error)                \
  EACH(ssh_get_fingerprint_hash)     \
  EACH(ssh_get_poll_flags)           \
  EACH(ssh_get_publickey_hash)       \
  EACH(ssh_get_server_publickey)     \
  EACH(ssh_is_connected)             \
  EACH(ssh_key_free)                 \
  EACH(ssh_new)                      \
  EACH(ssh_options_get)              \
  EACH(ssh_options_get_port)         \
  EACH(ssh_options_parse_config)     \
  EACH(ssh_options_set)              \
  EACH(ssh_pki_export_pubkey_base64) \
  EACH(ssh_pki_import_privkey_file)  \
  EACH(ssh_remove_channel_callbacks) \
  EACH(ssh_set_agent_socket)         \
  EACH(ssh_set_blocking)             \
  EACH(ssh_set_channel_callbacks)    \
  EACH(ssh_set_counters)             \
  EACH(ssh_set_log_callback)         \
  EACH(ssh_set_log_level)            \
  EACH(ssh_set_log_userdata)         \
  EACH(ssh_string_free_char)         \
  EACH(ssh_userauth_agent)           \
  EACH(ssh_userauth_list)            \
  EACH(ssh_userauth_publickey)

namespace hora::launcher {

// libssh deprecates ssh_channel_get_exit_status in later versions, for a function that cannot
// report "no status yet".
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// A hash of what both sides must have in common: libssh's headers, and the table. horarun may run
// for days before it loads the module, and another Hora may be installed meanwhile.
constexpr std::uint32_t libssh_border() {
#define HORA_LIBSSH_FUNCTION(name) #name " "
  constexpr std::string_view kTable = HORA_LIBSSH_FUNCTIONS(HORA_LIBSSH_FUNCTION);
#undef HORA_LIBSSH_FUNCTION
  std::uint32_t hash = LIBSSH_VERSION_INT;
  for (const char c : kTable)
    hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;  // FNV-1a
  return hash;
}

struct LibsshModule {
  std::uint32_t border;  // the module's libssh_border()
  // Called before all others, once in a process. Null, or why it failed.
  const char* (*prepare)();

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration.
#define HORA_LIBSSH_FUNCTION(name) decltype(&::name) name;
  HORA_LIBSSH_FUNCTIONS(HORA_LIBSSH_FUNCTION)
#undef HORA_LIBSSH_FUNCTION
};

#pragma GCC diagnostic pop

#define HORA_LIBSSH_ENTRY_POINT "hora_libssh_module_entry"
using LibsshEntryPoint = const LibsshModule* (*)();

// Before the first call of libssh(); cheap to call again. Thread-safe.
Status prepare_libssh();

// Only after prepare_libssh() has succeeded.
const LibsshModule& libssh();

// Owners of strings and keys that only libssh's own functions may free.
struct FreeSshText {
  void operator()(char* text) const { libssh().ssh_string_free_char(text); }
};
using SshText = std::unique_ptr<char, FreeSshText>;

struct FreeSshKey {
  void operator()(ssh_key key) const { libssh().ssh_key_free(key); }
};
using SshKey = std::unique_ptr<std::remove_pointer_t<ssh_key>, FreeSshKey>;

}  // namespace hora::launcher

extern "C" const hora::launcher::LibsshModule* hora_libssh_module_entry();
