#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   MIT Kerberos 1.20.1 (krb5-user of Debian 12)
# behaviour: krb5.conf takes `REALM = { kdc = HOST }` on one line without a word, and then knows no KDC of the realm
# guess:     it means the same as on three lines, or is a syntax error
# seen:      2026-11-28: one line: "kinit: Cannot find KDC for realm "R" while getting initial credentials",
#            three lines: "kinit: Cannot contact any KDC for realm 'R' while getting initial credentials"
# relies:    tests/integration/ssh/test_login.py (kerberos) writes the realm on several lines
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q krb5-user libkrb5-3 libkadm5clnt-mit12 libkadm5srv-mit12 libgssrpc4 libkdb5-10 >/dev/null 2>&1 ||
  { echo "needs the archive of Debian 12"; exit 77; }
for package in *.deb; do dpkg -x "$package" .; done
library=usr/lib/$(uname -m)-linux-gnu

# Nothing listens on the port.
try() {
  printf '[libdefaults]\n default_realm = R\n dns_lookup_kdc = false\n[realms]\n%b' "$1" >krb5.conf
  echo secret | KRB5_CONFIG=krb5.conf LD_LIBRARY_PATH=$library usr/bin/kinit user@R 2>&1 | tail -n 1 || true
}
one=$(try ' R = { kdc = 127.0.0.1:1 }\n')
three=$(try ' R = {\n  kdc = 127.0.0.1:1\n }\n')
echo "one line:    $one"
echo "three lines: $three"
case $one/$three in
  *"Cannot find KDC"*/*"Cannot contact any KDC"*) ;;
  *) echo "Kerberos no longer behaves as described" >&2; exit 1 ;;
esac
