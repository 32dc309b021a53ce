# SPDX-License-Identifier: Apache-2.0
# hora_libssh: libssh as HORA_LIBSSH_LINK asks; hora_libssh_headers: its declarations alone. From its archive it needs no
# shared library at run time but libc; the archive wants OpenSSL's, zlib's, and GSSAPI, which no platform has as an archive:
# gssapi_stub.c stands in for it.
set(HORA_LIBSSH_LINK AUTO CACHE STRING "Link libssh: AUTO (archive where possible), STATIC, SHARED")
set_property(CACHE HORA_LIBSSH_LINK PROPERTY STRINGS AUTO STATIC SHARED)
if(NOT HORA_LIBSSH_LINK MATCHES "^(AUTO|STATIC|SHARED)$")
  message(FATAL_ERROR "HORA_LIBSSH_LINK=${HORA_LIBSSH_LINK}: expected AUTO, STATIC or SHARED")
endif()

find_library(HORA_LIBZ_STATIC NAMES libz.a)
add_library(hora_libssh INTERFACE)
add_library(hora_libssh_headers INTERFACE)

set(hora_libssh_static OFF)
if(NOT HORA_LIBSSH_LINK STREQUAL "SHARED")
  if(HORA_LIBSSH_STATIC AND HORA_LIBCRYPTO_STATIC AND HORA_LIBZ_STATIC)
    # The archive may be of another build than the stub was written for (gcrypt, mbedTLS, PKCS#11).
    if(NOT DEFINED HORA_CAN_LINK_LIBSSH_STATIC)
      set(hora_libssh_check ${CMAKE_CURRENT_BINARY_DIR}/libssh_check.c)
      file(WRITE ${hora_libssh_check} "#include <libssh/libssh.h>\n"
           "int main(void) { return ssh_init() + ssh_connect(ssh_new()); }\n")
      try_compile(HORA_CAN_LINK_LIBSSH_STATIC ${CMAKE_CURRENT_BINARY_DIR}/libssh_check
        SOURCES ${hora_libssh_check} ${CMAKE_CURRENT_LIST_DIR}/gssapi_stub.c
        COMPILE_DEFINITIONS -DLIBSSH_STATIC=1
        LINK_LIBRARIES ${HORA_LIBSSH_STATIC} ${HORA_LIBCRYPTO_ARCHIVES}
                       Threads::Threads ${CMAKE_DL_LIBS})
    endif()
    set(hora_libssh_static ${HORA_CAN_LINK_LIBSSH_STATIC})
  endif()
  if(HORA_LIBSSH_LINK STREQUAL "STATIC" AND NOT hora_libssh_static)
    message(FATAL_ERROR "HORA_LIBSSH_LINK=STATIC, but libssh.a, libcrypto.a and libz.a do not link "
                        "(found: '${HORA_LIBSSH_STATIC}' '${HORA_LIBCRYPTO_STATIC}' "
                        "'${HORA_LIBZ_STATIC}')")
  endif()
endif()

if(hora_libssh_static)
  add_library(hora_gssapi_stub STATIC ${CMAKE_CURRENT_LIST_DIR}/gssapi_stub.c)
  target_compile_definitions(hora_libssh INTERFACE LIBSSH_STATIC=1)
  target_link_libraries(hora_libssh INTERFACE
    ${HORA_LIBSSH_STATIC} hora_gssapi_stub ${HORA_LIBCRYPTO_ARCHIVES}
    Threads::Threads ${CMAKE_DL_LIBS})
else()
  target_link_libraries(hora_libssh INTERFACE ssh)
endif()
get_target_property(hora_libssh_includes ssh INTERFACE_INCLUDE_DIRECTORIES)
if(hora_libssh_includes)
  target_include_directories(hora_libssh_headers SYSTEM INTERFACE ${hora_libssh_includes})
endif()
target_link_libraries(hora_libssh INTERFACE hora_libssh_headers)
if(hora_libssh_static)
  message(STATUS "libssh is linked from ${HORA_LIBSSH_STATIC}")
else()
  message(STATUS "libssh is linked as a shared library")
endif()
