#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   libssh-dev and libssh-4 0.10.6 (Debian 12)
# behaviour: a port that the program has set before ssh_options_parse_config() is replaced by the one of the file, while its
#            user is kept. Of two IdentityFile lines the last is the first to be tried.
# guess:     what the program says wins over the file, as -p and -l of ssh; of keys the order of the file counts
# seen:      2026-11-30, "port 2222, user me, first key second"
# relies:    launcher/transports/ssh_client.cpp: libssh reads no file (SSH_OPTIONS_PROCESS_CONFIG), `ssh -G` does
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get gcc >/dev/null || { echo "needs apt-get and gcc"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq {libssh-dev,libssh-4}=0.10.6-0+deb12u3 &&
  for package in *.deb; do dpkg -x "$package" .; done)
printf 'Host node1\n  Port 2222\n  User you\n  IdentityFile /first\n  IdentityFile /second\n' >"$folder/config"
cat >"$folder/read.c" <<'END_OF_SOURCE'
#include <libssh/libssh.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int port = 2200;
  unsigned int used = 0;
  char *user = NULL, *key = NULL;
  ssh_session session = ssh_new();
  ssh_options_set(session, SSH_OPTIONS_HOST, "node1");
  ssh_options_set(session, SSH_OPTIONS_PORT, &port);
  ssh_options_set(session, SSH_OPTIONS_USER, "me");
  ssh_options_parse_config(session, argv[argc - 1]);
  ssh_options_get_port(session, &used);
  ssh_options_get(session, SSH_OPTIONS_USER, &user);
  ssh_options_get(session, SSH_OPTIONS_IDENTITY, &key);
  printf("port %u, user %s, first key %s\n", used, user, key + 1);
  return 0;
}
END_OF_SOURCE
libraries=$(echo "$folder"/usr/lib/*-linux-gnu)
gcc -I"$folder/usr/include" "$folder/read.c" -o "$folder/read" -L"$libraries" -l:libssh.so.4 -Wl,-rpath,"$libraries"
seen=$("$folder/read" "$folder/config")
echo "$seen"
[ "$seen" = "port 2222, user me, first key second" ] || { echo "libssh no longer behaves as described" >&2; exit 1; }
