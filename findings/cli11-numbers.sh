#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   libcli11-dev 2.1.2 (Debian 12)
# behaviour: an option for an integer reads 010 as 8 and refuses 08, while one for a double reads 010 as 10. -1 is refused
#            for an unsigned, and is 18446744073709551615 for a std::size_t.
# guess:     010 is 10 for both, as in a list of numbered hosts or of CPUs; -1 is refused for all unsigned types
# seen:      2026-11-30, the lines that the script compares
# relies:    launcher/options/option_check.cpp: CLI11 gets texts alone, and the numbers in them are read by parse_int()
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get g++ >/dev/null || { echo "needs apt-get and g++"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq libcli11-dev=2.1.2+ds-1 && dpkg -x ./*.deb root)
cat >"$folder/read.cpp" <<'END_OF_SOURCE'
#include <CLI/CLI.hpp>
#include <cstddef>
#include <iostream>

template <typename Number>
void show(const char* type, const std::string& text) {
  CLI::App app;
  Number number{};
  app.add_option("--number", number);
  std::cout << type << " " << text << ": ";
  try {
    app.parse(std::vector<std::string>{"--number=" + text});
    std::cout << number << "\n";
  } catch (const CLI::Error&) {
    std::cout << "refused\n";
  }
}

int main() {
  show<int>("int", "010");
  show<int>("int", "08");
  show<double>("double", "010");
  show<unsigned>("unsigned", "-1");
  show<std::size_t>("size_t", "-1");
}
END_OF_SOURCE
g++ -std=c++17 -I"$folder/root/usr/include" "$folder/read.cpp" -o "$folder/read"
seen=$("$folder/read")
echo "$seen"
[ "$seen" = "int 010: 8
int 08: refused
double 010: 10
unsigned -1: refused
size_t -1: 18446744073709551615" ] || { echo "CLI11 no longer behaves as described" >&2; exit 1; }
