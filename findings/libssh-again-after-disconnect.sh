#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# package    libssh-dev and libssh-4 0.10.6-0+deb12u3, openssh-server 1:9.2p1-2+deb12u10 (Debian 12)
# behaviour  A non-blocking login whose server ends the connection ("Too many authentication failures") answers SSH_AUTH_AGAIN
#            from then on; only ssh_is_connected() and ssh_get_error() know of the end
# guess      ssh_userauth_publickey() answers SSH_AUTH_ERROR once the server is gone
# seen       2026-11-28: "again, connected 0, Received SSH_MSG_DISCONNECT: 2:Too many authentication failures"
# relies     SshClient::Authentication::outcome_of() in launcher/transports/ssh_client.cpp;
#            test_a_server_that_ends_the_login in tests/integration/ssh/test_login.py
set -euo pipefail
command -v cc >/dev/null || { echo "there is no C compiler here"; exit 77; }
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download libssh-dev=0.10.6-0+deb12u3 libssh-4=0.10.6-0+deb12u3 openssh-server=1:9.2p1-2+deb12u10 \
  openssh-client=1:9.2p1-2+deb12u10 2>/dev/null || { echo "the packages cannot be had here"; exit 77; }
for package in *.deb; do dpkg -x "$package" .; done
for key in host first second; do usr/bin/ssh-keygen -q -t ed25519 -N '' -f "$key"; done
printf 'HostKey %s/host\nUsePAM no\nMaxAuthTries 1\n' "$folder" >sshd_config
cat >login.c <<'C'
#include <fcntl.h>
#include <libssh/libssh.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int login(ssh_session session, const char *path) {
  ssh_key key;
  int code = SSH_AUTH_ERROR;
  if (ssh_pki_import_privkey_file(path, NULL, NULL, NULL, &key) != SSH_OK) return code;
  for (int i = 0; i < 100; ++i) {
    code = ssh_userauth_publickey(session, NULL, key);
    if (code != SSH_AUTH_AGAIN) break;
    poll(NULL, 0, 20);
  }
  ssh_key_free(key);
  return code;
}

int main(int argc, char **argv) {
  int ends[2], off = 0;
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  if (fork() == 0) {
    dup2(ends[1], 0);
    dup2(ends[1], 1);
    close(ends[0]);
    execl(argv[1], argv[1], "-i", "-f", argv[2], (char *)NULL);
  }
  close(ends[1]);
  ssh_session session = ssh_new();
  ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &off);
  ssh_options_set(session, SSH_OPTIONS_HOST, "somewhere");
  ssh_options_set(session, SSH_OPTIONS_USER, "nobody");
  ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
  ssh_options_set(session, SSH_OPTIONS_FD, &ends[0]);
  if (ssh_connect(session) != SSH_OK) return 2;
  ssh_set_blocking(session, 0);
  int code = login(session, argv[3]);
  if (code == SSH_AUTH_DENIED) code = login(session, argv[4]);
  printf("%s, connected %d, %s\n", code == SSH_AUTH_AGAIN ? "again" : "another code", ssh_is_connected(session),
         ssh_get_error(session));
  return argc - argc;
}
C
library=$folder/usr/lib/$(uname -m)-linux-gnu
cc -Iusr/include login.c -L"$library" -Wl,-rpath,"$library" -l:libssh.so.4 -o login
as_user=()
if [ "$(id -u)" = 0 ]; then  # as root, sshd would want a folder below /run
  as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$folder")
  chown -R 65534:65534 "$folder"
fi
"${as_user[@]}" ./login usr/sbin/sshd "$folder/sshd_config" first second | tee said
grep -q '^again, connected 0, .*Too many authentication failures' said || { echo "different"; exit 1; }
