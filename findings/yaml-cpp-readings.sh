#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   yaml-cpp 0.7.0 (libyaml-cpp-dev of Debian 12), PyYAML 6.0.3
# behaviour: one file means different things. Of a key that is there twice yaml-cpp returns the first value, PyYAML the
#            last, and neither complains. yaml-cpp takes the merge key << for an ordinary key.
# guess:     both refuse the duplicate, which YAML forbids, and both merge
# seen:      2026-11-28: "yaml-cpp: np 1, merged no" and "PyYAML: np 2, merged yes"
# relies:    launcher/options/config_file.cpp (check_twice, collect), which reads the files of programs that use PyYAML
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get g++ >/dev/null || { echo "needs apt-get and g++"; exit 77; }

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q PyYAML==6.0.3
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq {libyaml-cpp-dev,libyaml-cpp0.7}=0.7.0+dfsg-8+b1 &&
  for package in *.deb; do dpkg -x "$package" .; done)
cat >"$folder/file.yaml" <<'END'
base: &base {verbose: true}
job:
  <<: *base
  np: 1
  np: 2
END
cat >"$folder/read.cpp" <<'END'
#include <iostream>
#include <yaml-cpp/yaml.h>
int main(int, char** argv) {
  const YAML::Node job = YAML::LoadFile(argv[1])["job"];
  std::cout << "yaml-cpp: np " << job["np"] << ", merged " << (job["verbose"] ? "yes" : "no") << "\n";
}
END
libraries=$(echo "$folder"/usr/lib/*-linux-gnu)
g++ -I"$folder/usr/include" "$folder/read.cpp" -o "$folder/read" -L"$libraries" -lyaml-cpp -Wl,-rpath,"$libraries"
seen=$("$folder/read" "$folder/file.yaml"
  "$folder/venv/bin/python" -c '
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))["job"]
print("PyYAML: np %s, merged %s" % (job["np"], "yes" if "verbose" in job else "no"))' "$folder/file.yaml")
echo "$seen"
[ "$seen" = "yaml-cpp: np 1, merged no
PyYAML: np 2, merged yes" ] || { echo "the readers no longer behave as described" >&2; exit 1; }
