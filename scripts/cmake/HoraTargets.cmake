# SPDX-License-Identifier: Apache-2.0
# Compiler settings that every target of ours shares, and the few ways to make one.
add_library(hora_settings INTERFACE)
target_include_directories(hora_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(hora_settings INTERFACE hora_for_old_glibc)
target_compile_options(hora_settings INTERFACE -Wall -Wextra -Wno-unused-parameter
  # g++ 12 finds overlaps and ends of arrays where there are none (GCC 105651)
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds>)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Files hold a purpose, and not each program needs all of it: --gc-sections drops the rest.
  target_compile_options(hora_settings INTERFACE -ffunction-sections -fdata-sections)
endif()
if(HORA_FAST_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Of files that are compiled together it takes all but the first for headers, and a precompiled header of the system for ours.
  target_compile_options(hora_settings INTERFACE -Wno-subobject-linkage -Wno-stringop-overflow)
endif()
if(HORA_WERROR)
  target_compile_options(hora_settings INTERFACE -Werror)
endif()
if(HORA_SANITIZE)
  string(REPLACE ";" "," hora_sanitizers "${HORA_SANITIZE}")
  target_compile_options(hora_settings INTERFACE -fsanitize=${hora_sanitizers}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hora_settings INTERFACE -fsanitize=${hora_sanitizers})
  if("undefined" IN_LIST HORA_SANITIZE)
    # The check of vtables reads each object through a pipe, and calls it invalid where no descriptor is left for that.
    target_compile_options(hora_settings INTERFACE -fno-sanitize=vptr)
  endif()
endif()
if(HORA_FUZZ)
  target_compile_options(hora_settings INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(fuzzers)  # all of them, and nothing else
endif()
# Seconds. The thread sanitizer makes threads that hand each other much several times slower.
set(hora_test_timeout 300)
if(HORA_SANITIZE)
  set(hora_test_timeout 1500)
endif()
target_compile_definitions(hora_settings INTERFACE
  HORA_VERSION="${PROJECT_VERSION}" HORA_WITH_SSH=$<BOOL:${HORA_HAVE_SSH}>)

# Reading the standard library's headers is most of the time that it takes to compile a file: they are read once.
# A compilation with other flags cannot use what was read with these.
add_library(hora_standard_headers STATIC ${CMAKE_CURRENT_LIST_DIR}/standard_headers.cpp)
target_link_libraries(hora_standard_headers PRIVATE hora_settings)
set(CMAKE_PCH_WARN_INVALID OFF)  # a compiler that cannot use them reads the headers again
function(hora_precompile target)
  if(HORA_FAST_BUILD)
    target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/scripts/cmake/standard_headers.h>" ${ARGN})
    # For ccache, since no two runs of the compiler write the same bytes.
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum "${HORA_HEADERS_READ}")
  endif()
endfunction()
file(SHA256 ${CMAKE_CURRENT_LIST_DIR}/standard_headers.h HORA_HEADERS_READ)
string(REPLACE "${PROJECT_SOURCE_DIR}/" "" hora_sysroot "${HORA_SYSROOT}")  # the same in all checkouts
string(APPEND HORA_HEADERS_READ " ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS_RELEASE} ${hora_sysroot}")
hora_precompile(hora_standard_headers)

# hora_add_component([OBJECT] [OWN_FLAGS] [ONE_BY_ONE] SOURCES a.cpp ... DEPENDS folder ... [LINK target ...]): the folder of this CMakeLists.txt as a
# static library, or an object library; its target is hora_<folder>, with _ for /. DEPENDS names the folders whose
# headers it includes, each once and no other: scripts/check.d/layers reads these calls. LINK: libraries that are not
# ours.
function(hora_add_component)
  cmake_parse_arguments(ARG "OBJECT;OWN_FLAGS;ONE_BY_ONE" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "_" name ${folder})
  set(kind STATIC)
  set(scope PUBLIC)
  if(ARG_OBJECT)
    set(kind OBJECT)
  elseif(NOT ARG_SOURCES)
    set(kind INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(hora_${name} ${kind} ${ARG_SOURCES})
  hora_link_components(hora_${name} ${scope} DEPENDS ${ARG_DEPENDS})
  target_link_libraries(hora_${name} ${scope} ${ARG_LINK})
  if(HORA_FAST_BUILD AND ARG_SOURCES)
    if(NOT ARG_OWN_FLAGS)
      target_precompile_headers(hora_${name} REUSE_FROM hora_standard_headers)
    endif()
    if(NOT ARG_ONE_BY_ONE)
      set_target_properties(hora_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8 UNITY_BUILD_RELOCATABLE ON)
    endif()
  endif()
endfunction()

# hora_link_components(target PUBLIC|PRIVATE|INTERFACE DEPENDS folder ...): the same for a target of another kind, such as a
# program.
function(hora_link_components target scope)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  list(TRANSFORM ARG_DEPENDS REPLACE "/" "_")
  list(TRANSFORM ARG_DEPENDS PREPEND hora_)
  target_link_libraries(${target} ${scope} hora_settings ${ARG_DEPENDS})
endfunction()

# hora_add_unit_test(name SOURCES a_test.cpp ... LINK target ... [LABELS unit] [ENVIRONMENT A=b]): a
# Catch2 program; each of its cases is a ctest entry "name: case".
function(hora_add_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hora_settings ${ARG_LINK} hora_catch_main)
  target_compile_definitions(${name} PRIVATE HORA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")  # for pages and tables
  # The test's own code need not be fast: this halves the time to compile it.
  if(HORA_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(HORA_FAST_BUILD)
    target_compile_options(${name} PRIVATE -fPIC)  # as hora_test_headers
    target_precompile_headers(${name} REUSE_FROM hora_test_headers)
  endif()
  set(properties "LABELS [==[${ARG_LABELS}]==] TIMEOUT ${hora_test_timeout} ENVIRONMENT [==[${ARG_ENVIRONMENT}]==]")
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()  # it cannot run here
  endif()
  set(cases ${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake)
  add_custom_command(TARGET ${name} POST_BUILD VERBATIM BYPRODUCTS ${cases}
    COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/cmake/list-cases $<TARGET_FILE:${name}> ${name} ${properties}
            ${CMAKE_CROSSCOMPILING_EMULATOR} > ${cases})
  # ctest reads this when it starts; a program that was not built is a failure and not a gap.
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake
    "if(EXISTS [==[${cases}]==])\n  include([==[${cases}]==])\nelse()\n  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
endfunction()

# hora_add_fuzzer(NAME TARGET...) makes of NAME.cpp a libFuzzer program with HORA_FUZZ, else a test that replays its seeds
# (tests/fuzz/corpus.py).
function(hora_add_fuzzer name)
  if(HORA_FUZZ)
    add_executable(${name} ${name}.cpp)
    target_link_libraries(${name} PRIVATE hora_settings ${ARGN} -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
  else()
    add_executable(${name}_replay ${name}.cpp replay_main.cpp)
    target_link_libraries(${name}_replay PRIVATE hora_settings ${ARGN})
    add_test(NAME ${name}_replay
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/corpus.py replay $<TARGET_FILE:${name}_replay>)
    set_tests_properties(${name}_replay PROPERTIES LABELS "unit;fuzz" TIMEOUT 120)
  endif()
endfunction()
