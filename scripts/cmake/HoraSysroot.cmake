# SPDX-License-Identifier: Apache-2.0
# Building for hosts with an older C library. HORA_SYSROOT names a folder that scripts/cmake/sysroot has filled; the
# release preset sets it. Then everything that is shipped runs on every Linux of the architecture from glibc
# HORA_GLIBC_FLOOR on: it is compiled with the sysroot's headers, linked with its libraries and with
# rendezvous/old_glibc, and has the C++ runtime inside. Tests compile the same way, but link this machine's C library.
# docs/decisions/0022-glibc-floor.md says why.
set(HORA_SYSROOT "" CACHE PATH "The folder that scripts/cmake/sysroot filled; empty: hosts need the glibc of this machine")
set(HORA_GLIBC_FLOOR 2.28)
set(HORA_PORTABLE OFF)
set(HORA_WHY_NOT_PORTABLE "HORA_SYSROOT is not set")
if(HORA_SYSROOT)
  set(hora_root ${HORA_SYSROOT}/${CMAKE_SYSTEM_PROCESSOR})
  set(HORA_WHY_NOT_PORTABLE "${hora_root} is not complete (scripts/cmake/sysroot fills it)")
  if(HORA_SANITIZE)
    set(HORA_WHY_NOT_PORTABLE "a build with sanitizers is for the machine that made it")
  elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(HORA_WHY_NOT_PORTABLE "it takes g++")
  elseif(EXISTS ${hora_root}/complete)
    set(HORA_PORTABLE ON)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${hora_root}/complete)
  endif()
endif()

add_library(hora_for_old_glibc INTERFACE)   # compile options of all of ours
add_library(hora_link_old_glibc INTERFACE)  # link options of what is shipped
if(HORA_PORTABLE)
  set(hora_triplet ${CMAKE_LIBRARY_ARCHITECTURE})
  target_compile_options(hora_for_old_glibc INTERFACE --sysroot=${hora_root}
    # Old headers turn stat() and others into calls that newer C libraries no longer offer to the linker.
    -D__NO_INLINE__
    $<$<COMPILE_LANGUAGE:CXX>:-nostdinc++>)
  # With a sysroot g++ would look for its own headers there.
  foreach(folder ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
    if(folder MATCHES "/c\\+\\+/")
      target_compile_options(hora_for_old_glibc INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-isystem ${folder}>")
    endif()
  endforeach()
  # A cross compiler has a C library of its own and prefers the headers of that.
  if(CMAKE_CROSSCOMPILING)
    foreach(folder ${CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES})
      if(folder MATCHES "/gcc")
        target_compile_options(hora_for_old_glibc INTERFACE "SHELL:-isystem ${folder}")
      endif()
    endforeach()
    foreach(folder ${hora_root}/usr/include/${hora_triplet} ${hora_root}/usr/include)
      target_compile_options(hora_for_old_glibc INTERFACE "SHELL:-isystem ${folder}")
    endforeach()
  endif()
  # The headers of libraries; what the sysroot has takes precedence. Another processor has libraries of its own, but
  # not those that are headers only.
  set(hora_header_folders ${HORA_LIBRARIES_ROOT}/usr/include/${hora_triplet} ${HORA_LIBRARIES_ROOT}/usr/include)
  if(HORA_LIBRARIES_ROOT)
    list(APPEND hora_header_folders /usr/include)
  endif()
  foreach(folder ${hora_header_folders})
    target_compile_options(hora_for_old_glibc INTERFACE "SHELL:-idirafter ${folder}")
  endforeach()
  target_link_options(hora_link_old_glibc INTERFACE --sysroot=${hora_root}
    -B${hora_root}/usr/lib/${hora_triplet}/ -L${hora_root}/usr/lib/${hora_triplet} -L${hora_root}/lib/${hora_triplet})
  # In the C library itself since 2.34. The last is asked before libm, which has ldexp(), too, and may not be needed (-lc alone g++ moves behind it).
  target_link_libraries(hora_link_old_glibc INTERFACE -lpthread -ldl -lrt -Wl,-lc)
endif()
if(NOT HORA_SANITIZE)
  # A program may have loaded an older C++ runtime, or a host may have none.
  target_link_options(hora_link_old_glibc INTERFACE -static-libstdc++ -static-libgcc)
endif()

# hora_ship(target [WITHOUT_MATH]): links the program or library so that it runs on the hosts.
function(hora_ship target)
  cmake_parse_arguments(ARG "WITHOUT_MATH" "" "" ${ARGN})
  target_link_libraries(${target} PRIVATE hora_link_old_glibc)
  if(HORA_PORTABLE)
    target_link_libraries(${target} PRIVATE hora_rendezvous_old_glibc)
    if(NOT ARG_WITHOUT_MATH)
      target_link_libraries(${target} PRIVATE hora_rendezvous_old_glibc_math)
    endif()
  endif()
endfunction()
