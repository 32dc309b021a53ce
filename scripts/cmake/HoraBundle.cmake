# SPDX-License-Identifier: Apache-2.0
# What horarun ships to hosts with this build's processor:
# <build>/share/hora/<machine>/{agent/hora-agent, bundle/, manifest.json, files.json}. The layout is the
# same in an installed prefix, so horarun finds all of it next to its own executable.
set(HORA_SHARE ${CMAKE_BINARY_DIR}/share/hora/${CMAKE_SYSTEM_PROCESSOR})

# hora_bundle(target folder PART part [STATIC]): ships the target's file in the bundle's `folder` (lib or bin), with the
# shared libraries it needs in lib/deps. Jobs ship it if they need that part: launcher/parts/part_rules.cpp. DT_RPATH and not DT_RUNPATH, since only the former is
# searched for what the libraries in lib/deps need themselves. STATIC: a program that is linked fully statically.
function(hora_bundle target folder)
  cmake_parse_arguments(ARG "STATIC" "PART" "" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY HORA_BUNDLE_TARGETS ${target})
  set_property(GLOBAL APPEND PROPERTY HORA_BUNDLE_MODULES
               --module ${ARG_PART}:${folder}=$<TARGET_FILE:${target}>)
  if(folder STREQUAL lib)
    set(rpath "$ORIGIN;$ORIGIN/deps")
  else()
    set(rpath "$ORIGIN/../lib;$ORIGIN/../lib/deps")
  endif()
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH TRUE INSTALL_RPATH "${rpath}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  if(ARG_STATIC)
    target_link_options(${target} PRIVATE -static)
  else()
    hora_ship(${target})
  endif()
endfunction()

# Called once, when every room has been read.
function(hora_make_bundle)
  set(python_root ${PROJECT_SOURCE_DIR}/collectives/python)
  get_property(targets GLOBAL PROPERTY HORA_BUNDLE_TARGETS)
  get_property(modules GLOBAL PROPERTY HORA_BUNDLE_MODULES)
  set(arguments --output ${HORA_SHARE} --version ${PROJECT_VERSION} ${modules})
  set(inputs ${PROJECT_SOURCE_DIR}/scripts/cmake/bundle ${targets})
  if(TARGET hora-agent)
    list(APPEND arguments --agent $<TARGET_FILE:hora-agent>)
    list(APPEND inputs hora-agent)
  endif()
  if(TARGET hora-dial)
    list(APPEND arguments --dial $<TARGET_FILE:hora-dial>)
    list(APPEND inputs hora-dial)
  endif()
  if(IS_DIRECTORY ${python_root})
    file(GLOB_RECURSE python_files CONFIGURE_DEPENDS ${python_root}/*.py ${python_root}/*.typed)
    list(APPEND arguments --python ${python_root})
    list(APPEND inputs ${python_files})
  endif()
  if(NOT HORA_SANITIZE)
    list(APPEND arguments --strip ${CMAKE_STRIP})
  endif()
  if(HORA_LIBRARIES_ROOT)
    list(APPEND arguments --library-path ${HORA_LIBRARIES_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()

  find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)
  # Functions travel as cloudpickles, which few hosts can read by themselves. The distribution's copy is for the Pythons
  # of its time; scripts/setup brings one for the newer ones.
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import cloudpickle; print(cloudpickle.__path__[0])"
    OUTPUT_VARIABLE cloudpickle OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(newer ${PROJECT_SOURCE_DIR}/build/cloudpickle/cloudpickle)
  foreach(pair "${cloudpickle};_bundled" "${newer};_bundled_newer")
    list(GET pair 0 folder)
    list(GET pair 1 name)
    if(IS_DIRECTORY "${folder}")
      file(COPY ${folder} DESTINATION ${CMAKE_BINARY_DIR}/bundled-python/hora/${name}
           FILES_MATCHING PATTERN *.py PATTERN __pycache__ EXCLUDE)
    else()
      message(STATUS "The bundle is made without ${name}/cloudpickle (scripts/setup)")
    endif()
  endforeach()
  if(IS_DIRECTORY ${CMAKE_BINARY_DIR}/bundled-python)
    list(APPEND arguments --python ${CMAKE_BINARY_DIR}/bundled-python)
  endif()
  set(stamp ${CMAKE_BINARY_DIR}/bundle.stamp)
  add_custom_command(
    OUTPUT ${stamp} BYPRODUCTS ${HORA_SHARE}/manifest.json ${HORA_SHARE}/files.json
    COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/cmake/bundle ${arguments}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${inputs} COMMENT "Filling share/hora/${CMAKE_SYSTEM_PROCESSOR}" VERBATIM)
  add_custom_target(bundle ALL DEPENDS ${stamp})

  # Everything but the tests: what `scripts/run` builds.
  add_custom_target(product DEPENDS bundle)
  foreach(program horarun hora-agent hora-dial manual)
    if(TARGET ${program})
      add_dependencies(product ${program})
    endif()
  endforeach()
endfunction()
