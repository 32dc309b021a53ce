# SPDX-License-Identifier: Apache-2.0
# `cpack -G DEB` and `cpack -G RPM` in a build folder make the package hora for machines with glibc HORA_GLIBC_FLOOR or
# later: the launcher with what it ships. Nothing else is needed, so the dependencies are named here and not
# searched for. docs/howto/install.md says who should take which package.
if(NOT HORA_PORTABLE)
  return()  # the package would claim what is not so
endif()

set(CPACK_PACKAGE_NAME hora)
set(CPACK_PACKAGE_VENDOR "The Hora project")
# Who publishes a package answers for it: -DHORA_PACKAGE_CONTACT="Name <address>".
set(HORA_PACKAGE_CONTACT "The Hora maintainers <hora@localhost>" CACHE STRING "Maintainer of the packages")
set(CPACK_PACKAGE_CONTACT "${HORA_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Launcher of distributed training jobs on bare hosts")
set(CPACK_PACKAGE_DESCRIPTION
"horarun starts a distributed training job on machines that have no part of
Hora installed: it brings agent and collective runtime along over ssh, tags
the output of each rank, and leaves nothing behind. Horovod and PyTorch DDP
scripts run unmodified.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR OFF)
set(CPACK_STRIP_FILES ON)  # horarun; what it ships is as the manifest says
# The launcher with what it ships; `cmake --install` installs libhora for developers, too.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};hora;hora;/;${CMAKE_BINARY_DIR};hora;hosts;/")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/prepare_package.cmake)
set(CPACK_HORA_SOURCE ${PROJECT_SOURCE_DIR})

# Debian's and rpm's names of the processor, which may not be this machine's.
set(hora_debian_x86_64 amd64)
set(hora_debian_aarch64 arm64)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${hora_debian_${CMAKE_SYSTEM_PROCESSOR}})
set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})

# Files that Python writes next to the packages when root runs jobs are in no list of files.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package/prerm @ONLY CONTENT
"#!/bin/sh
set -e
find /usr/share/hora -depth -type d -name __pycache__ -exec rm -r {} +
")
file(CHMOD ${CMAKE_BINARY_DIR}/package/prerm PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
     WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/package/prerm)
set(CPACK_RPM_PRE_UNINSTALL_SCRIPT_FILE ${CMAKE_BINARY_DIR}/package/prerm)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${HORA_GLIBC_FLOOR})")
# horarun speaks ssh itself; this has the tools for keys, and programs for --rsh.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
# Hora's own, and those of what is linked into its programs (scripts/cmake/third-party-notices).
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0 AND LGPL-2.1-or-later AND BSD-3-Clause AND BSD-2-Clause AND MIT AND ISC AND \
Zlib AND BSL-1.0 AND GPL-3.0-or-later WITH GCC-exception-3.1")
set(CPACK_RPM_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_RPM_PACKAGE_REQUIRES "glibc >= ${HORA_GLIBC_FLOOR}")
set(CPACK_RPM_PACKAGE_AUTOREQPROV no)
# The machine that builds must not change what is shipped: no stripping, no byte-compiling, no renamed interpreters.
set(CPACK_RPM_SPEC_MORE_DEFINE "%global __os_install_post %{nil}\n%global debug_package %{nil}
%global _build_id_links none\n%global _binary_payload w9.xzdio")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /usr/share/man /usr/share/man/man1 /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/doc)
include(CPack)
