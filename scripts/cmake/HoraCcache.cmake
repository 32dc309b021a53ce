# SPDX-License-Identifier: Apache-2.0
# Compiles by way of ccache where it works. It fails every compilation if it cannot write its cache, as in a home
# directory that is read-only or is not there.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/try_ccache.c "")
  execute_process(COMMAND ${CCACHE_PROGRAM} ${CMAKE_C_COMPILER} -c try_ccache.c -o try_ccache.o
                  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/CMakeFiles
                  RESULT_VARIABLE hora_ccache_fails OUTPUT_QUIET ERROR_VARIABLE hora_ccache_error)
  if(hora_ccache_fails)
    string(STRIP "${hora_ccache_error}" hora_ccache_error)
    message(STATUS "without ccache: ${hora_ccache_error}")
  else()
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    # HoraTargets.cmake says what a precompiled header is made of.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  endif()
endif()
