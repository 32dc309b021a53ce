# SPDX-License-Identifier: Apache-2.0
# Run by CPack between installing into its own folder and packing that: what a distribution asks for beyond the files of
# an installation.
set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})

# As gzip -9n: the same input gives the same bytes.
function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

compress(${usr}/share/man/man1/horarun.1)
if(EXISTS ${usr}/bin/horovodrun)
  file(CREATE_LINK horarun.1.gz ${usr}/share/man/man1/horovodrun.1.gz SYMBOLIC)
endif()
set(doc ${usr}/share/doc/hora)
if(CPACK_GENERATOR STREQUAL "DEB")
  # Debian's zsh looks elsewhere below /usr than zsh itself.
  file(MAKE_DIRECTORY ${usr}/share/zsh/vendor-completions)
  file(RENAME ${usr}/share/zsh/site-functions/_horarun ${usr}/share/zsh/vendor-completions/_horarun)
  file(REMOVE_RECURSE ${usr}/share/zsh/site-functions)
  file(READ ${CPACK_HORA_SOURCE}/scripts/packages/copyright notice)
  file(WRITE ${doc}/copyright "${notice}")
  file(COPY_FILE ${CPACK_HORA_SOURCE}/CHANGELOG.md ${doc}/changelog)
  compress(${doc}/changelog)
  string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if set
  file(WRITE ${doc}/changelog.Debian
       "hora (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
       "  * Upstream release: see changelog.gz.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
  compress(${doc}/changelog.Debian)
  compress(${doc}/THIRD-PARTY-NOTICES.txt)
  file(MAKE_DIRECTORY ${usr}/share/lintian/overrides)
  file(COPY_FILE ${CPACK_HORA_SOURCE}/scripts/packages/lintian-overrides ${usr}/share/lintian/overrides/hora)
else()
  file(MAKE_DIRECTORY ${doc})
  foreach(name LICENSE README.md CHANGELOG.md)
    file(COPY_FILE ${CPACK_HORA_SOURCE}/${name} ${doc}/${name})
  endforeach()
endif()
file(GLOB_RECURSE folders LIST_DIRECTORIES true ${usr}/share/doc/* ${usr}/share/lintian/* ${usr}/share/zsh/*)
foreach(path ${folders})
  if(IS_DIRECTORY ${path})
    file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  else()
    file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endif()
endforeach()
