# SPDX-License-Identifier: Apache-2.0
# make install: bin/horarun, share/hora (what it ships), manual page and completions are the component `hora`, which the
# packages of HoraPackages.cmake contain; libhora with its header and CMake package are `development`.
include(CMakePackageConfigHelpers)

if(TARGET horarun)
  install(TARGETS horarun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT hora)
  if(HORA_INSTALL_HOROVODRUN)
    install(CODE "
      set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
      file(CREATE_LINK horarun \"\${bin}/horovodrun\" SYMBOLIC)
      message(STATUS \"Installing: \${bin}/horovodrun -> horarun\")"
      COMPONENT hora)
  endif()
endif()

# Copyrights and licences of what is linked into the programs.
set(hora_notices ${CMAKE_BINARY_DIR}/THIRD-PARTY-NOTICES.txt)
set(hora_sbom ${CMAKE_BINARY_DIR}/sbom.cdx.json)
set(hora_notice_arguments --output ${hora_notices} --sbom ${hora_sbom} --version ${PROJECT_VERSION})
if(HORA_LIBRARIES_ROOT)
  list(APPEND hora_notice_arguments --root ${HORA_LIBRARIES_ROOT})
endif()
if(HORA_PORTABLE)
  list(APPEND hora_notice_arguments --glibc ${HORA_SYSROOT}/${CMAKE_SYSTEM_PROCESSOR} --gloo ${HORA_SYSROOT}/gloo)
endif()
if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/build/cloudpickle/cloudpickle)
  list(APPEND hora_notice_arguments --cloudpickle ${PROJECT_SOURCE_DIR}/build/cloudpickle)
endif()
set(hora_absent "")
foreach(pair SSH=libssh TLS=OpenSSL GLOO=Gloo)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 feature)
  list(GET pair 1 library)
  # libssh brings OpenSSL with it.
  if(NOT HORA_HAVE_${feature} AND NOT (feature STREQUAL "TLS" AND HORA_HAVE_SSH))
    list(APPEND hora_absent ${library})
  endif()
endforeach()
list(JOIN hora_absent "," hora_absent)
add_custom_command(OUTPUT ${hora_notices} ${hora_sbom}
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/cmake/third-party-notices ${hora_notice_arguments} --without "${hora_absent}"
  DEPENDS ${PROJECT_SOURCE_DIR}/scripts/cmake/third-party-notices COMMENT "Writing THIRD-PARTY-NOTICES.txt and the SBOM" VERBATIM)
add_custom_target(notices ALL DEPENDS ${hora_notices})
add_dependencies(product notices)
install(FILES ${hora_notices} ${hora_sbom} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hora COMPONENT hora)

# horarun looks in ../share/hora, whatever CMAKE_INSTALL_DATADIR says. A folder for each processor that has a build
# here (scripts/build --arch). The component `hosts` has no more than that: it adds a processor to an installation.
install(CODE "
  file(GLOB machines \"${CMAKE_BINARY_DIR}/share/hora/*/manifest.json\")
  foreach(manifest \${machines})
    get_filename_component(machine \${manifest} DIRECTORY)
    file(INSTALL \${machine} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/hora\" USE_SOURCE_PERMISSIONS
         PATTERN __pycache__ EXCLUDE)
  endforeach()" COMPONENT hosts)

# For programs that link libhora: find_package(hora) gives hora::hora. The modules that it loads
# lie next to it, as in the bundle. Where the bundle is installed, too, lib/ has links to it.
if(TARGET hora)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/hora)
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
  install(TARGETS hora EXPORT hora_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/collectives/include/hora/hora.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hora)
  get_property(modules GLOBAL PROPERTY HORA_BUNDLE_TARGETS)
  foreach(module ${modules})
    get_target_property(kind ${module} TYPE)
    if(kind STREQUAL MODULE_LIBRARY)
      install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
  endforeach()
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    set(bundled \"\${prefix}/share/hora/${CMAKE_SYSTEM_PROCESSOR}/bundle/lib\")
    file(GLOB libraries RELATIVE \"\${bundled}\" \"\${bundled}/libhora*.so\")
    file(RELATIVE_PATH from_lib \"\${prefix}/${CMAKE_INSTALL_LIBDIR}\" \"\${bundled}\")
    foreach(library \${libraries})
      file(CREATE_LINK \"\${from_lib}/\${library}\" \"\${prefix}/${CMAKE_INSTALL_LIBDIR}/\${library}\" SYMBOLIC)
    endforeach()")
  install(EXPORT hora_targets NAMESPACE hora:: DESTINATION ${package})
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hora-config.cmake.in
                                ${CMAKE_BINARY_DIR}/hora-config.cmake INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/hora-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/hora-config.cmake ${CMAKE_BINARY_DIR}/hora-config-version.cmake
          DESTINATION ${package})
endif()
