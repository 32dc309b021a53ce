# Compiler settings that every target of ours shares, and the few ways to make one.
add_library(hora_settings INTERFACE)
target_include_directories(hora_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(hora_settings INTERFACE -Wall -Wextra -Wno-unused-parameter
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 finds overlaps where there are none (GCC 105651)
if(HORA_WERROR)
  target_compile_options(hora_settings INTERFACE -Werror)
endif()
if(HORA_SANITIZE)
  string(REPLACE ";" "," hora_sanitizers "${HORA_SANITIZE}")
  target_compile_options(hora_settings INTERFACE -fsanitize=${hora_sanitizers}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hora_settings INTERFACE -fsanitize=${hora_sanitizers})
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

# hora_add_library(name SOURCES a.cpp ... LINK target ...): a static library of ours.
function(hora_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC hora_settings ${ARG_LINK})
endfunction()

# hora_add_unit_test(name SOURCES a_test.cpp ... LINK target ... [LABELS unit]): a Catch2 program,
# one ctest entry for the program.
function(hora_add_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hora_settings ${ARG_LINK} hora_catch_main)
  # The test's own code need not be fast: this halves the time to compile it.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  add_test(NAME ${name} COMMAND ${name} --durations no)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${hora_test_timeout})
endfunction()

# hora_add_fuzzer(name SOURCES fuzz_x.cpp LINK target): a libFuzzer program under HORA_FUZZ; always
# also a replay of its corpus (tests/fuzz/corpus/<name>/) that the unit run executes.
function(hora_add_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(HORA_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE hora_settings ${ARG_LINK} -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
  else()
    add_executable(${name}_replay ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    target_link_libraries(${name}_replay PRIVATE hora_settings ${ARG_LINK})
    add_test(NAME ${name}_replay
             COMMAND ${name}_replay ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(${name}_replay PROPERTIES LABELS "unit;fuzz" TIMEOUT 120)
  endif()
endfunction()
