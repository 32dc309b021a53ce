# SPDX-License-Identifier: Apache-2.0
# Builds for ARM64 on another machine: g++-aarch64-linux-gnu, and what `scripts/cmake/sysroot --arch aarch64` has fetched. The
# preset release-aarch64 names this file.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
get_filename_component(HORA_LIBRARIES_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/sysroot/aarch64.libraries ABSOLUTE)
set(hora_triplet_folder ${HORA_LIBRARIES_ROOT}/usr/lib/aarch64-linux-gnu)

# Libraries are those of ARM64; headers that have no library, and the programs of the build, those of this machine.
set(CMAKE_FIND_ROOT_PATH ${HORA_LIBRARIES_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(ENV{PKG_CONFIG_LIBDIR} ${hora_triplet_folder}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${HORA_LIBRARIES_ROOT})

# This machine's mpicc would answer for its own processor.
set(MPI_SKIP_COMPILER_WRAPPER ON)
if(EXISTS ${hora_triplet_folder}/openmpi/lib/libmpi.so)
  set(MPI_C_HEADER_DIR ${hora_triplet_folder}/openmpi/include)
  set(MPI_C_LIB_NAMES mpi)
  set(MPI_mpi_LIBRARY ${hora_triplet_folder}/openmpi/lib/libmpi.so)
else()
  set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
endif()
# libmpi needs libraries that are on the hosts alone.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--allow-shlib-undefined)

# What runs programs of the build on this machine, such as qemu-aarch64; it finds the compiler's C library for them.
if(HORA_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${HORA_EMULATOR} -L /usr/aarch64-linux-gnu)
endif()
