#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   requests 2.34.2, urllib of Python 3.11, curl 7.88.1, wget 1.21.3
# behaviour: of a cluster's network in no_proxy (10.0.0.0/8), requests and curl know the hosts, urllib and wget do not and
#            send what is for them to the proxy. wget does not know `*` either, urllib alone takes a port.
# guess:     no_proxy means the same to all clients of a host
# seen:      2026-11-30, the table that the script compares; nothing in it leaves the machine
# relies:    docs/howto/environment-and-secrets.md, which says what to write: ranks get the proxy's variables. Hora's own
#            clients of the rendezvous use no proxy (rendezvous/http_store.cpp, hora/clusters.py)
set -euo pipefail
for program in curl wget; do command -v $program >/dev/null || { echo "needs $program"; exit 77; }; done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install -q requests==2.34.2 || { echo "needs PyPI"; exit 77; }
curl --version | head -1
wget --version | head -1
seen=$("$folder/bin/python" - <<'PYTHON'
import http.server
import os
import subprocess
import threading
import urllib.request

import requests


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"proxy" if self.path.startswith("http:") else b"host")

    def log_message(self, *_):
        pass


servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) for _ in range(2)]
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
url, os.environ["http_proxy"] = (f"http://127.0.0.1:{server.server_port}/" for server in servers)
os.environ.pop("NO_PROXY", None)


def output(*command):
    return subprocess.run([*command, url], stdout=subprocess.PIPE, check=True, text=True).stdout


for listed in "127.0.0.1", "127.0.0.0/8", "*", f"127.0.0.1:{servers[0].server_port}":
    os.environ["no_proxy"] = listed
    print(listed.replace(str(servers[0].server_port), "PORT"), "requests", requests.get(url).text, "urllib",
          urllib.request.urlopen(url).read().decode(), "curl", output("curl", "-s"), "wget", output("wget", "-qO-"))
PYTHON
)
echo "$seen"
[ "$seen" = "127.0.0.1 requests host urllib host curl host wget host
127.0.0.0/8 requests host urllib proxy curl host wget proxy
* requests host urllib host curl host wget proxy
127.0.0.1:PORT requests proxy urllib host curl proxy wget proxy" ] ||
  { echo "no_proxy is no longer read as described" >&2; exit 1; }
