# SPDX-License-Identifier: Apache-2.0
# Options of the build. A feature is AUTO (use it when found), ON (an error when not found) or OFF.
foreach(feature SSH TLS GLOO MPI CUDA NCCL SHM PMIX)
  set(HORA_WITH_${feature} AUTO CACHE STRING "Build with ${feature}: AUTO, ON or OFF")
  set_property(CACHE HORA_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
  if(NOT HORA_WITH_${feature} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "HORA_WITH_${feature}=${HORA_WITH_${feature}}: expected AUTO, ON or OFF")
  endif()
endforeach()

set(HORA_SANITIZE "" CACHE STRING "Sanitizers, semicolon-separated: address;undefined or thread")
option(HORA_WERROR "Warnings are errors" OFF)
option(HORA_FAST_BUILD "Read the standard library's headers once and compile several files together" OFF)
option(HORA_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(HORA_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HORA_INSTALL_HOROVODRUN "Install horarun under the name horovodrun too" ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# The distribution's own Python, which scripts/setup gives pytest, NumPy and PyTorch, before whatever
# else is first on PATH. -DPython3_EXECUTABLE=... chooses another.
if(NOT Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3)
endif()
