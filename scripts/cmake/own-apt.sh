# SPDX-License-Identifier: Apache-2.0
# own_apt FOLDER ARCHITECTURE: from here on apt-get works in FOLDER, for that architecture, with the archives that
# FOLDER/sources.list names. It neither reads nor changes what this machine has installed, and needs no root.
own_apt() {
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  cat >"$1/apt.conf" <<CONF
Dir::State::Lists "$1/lists";
Dir::State::Status "/dev/null";
Dir::Cache "$1/cache";
Dir::Etc::SourceList "$1/sources.list";
Dir::Etc::SourceParts "/dev/null";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Architecture "$2";
APT::Architectures { "$2"; };
APT::Sandbox::User "";
CONF
  export APT_CONFIG="$1/apt.conf"
}
