// SPDX-License-Identifier: Apache-2.0
/* libssh's archive was built with GSSAPI, and no platform has that as an archive. Hora never
 * authenticates that way; these say "unavailable" (GSS_S_UNAVAILABLE) should libssh ever ask.
 * Linked only into programs that have libssh.a in them. */
#include <stddef.h>

#define HORA_GSS_UNAVAILABLE (16u << 16)
#define HORA_REFUSE(name) \
  unsigned int name(void); \
  unsigned int name(void) { return HORA_GSS_UNAVAILABLE; }

HORA_REFUSE(gss_accept_sec_context)
HORA_REFUSE(gss_acquire_cred)
HORA_REFUSE(gss_add_oid_set_member)
HORA_REFUSE(gss_create_empty_oid_set)
HORA_REFUSE(gss_delete_sec_context)
HORA_REFUSE(gss_display_name)
HORA_REFUSE(gss_display_status)
HORA_REFUSE(gss_get_mic)
HORA_REFUSE(gss_import_name)
HORA_REFUSE(gss_indicate_mechs)
HORA_REFUSE(gss_init_sec_context)
HORA_REFUSE(gss_inquire_cred)
HORA_REFUSE(gss_inquire_cred_by_mech)
HORA_REFUSE(gss_release_buffer)
HORA_REFUSE(gss_release_cred)
HORA_REFUSE(gss_release_name)
HORA_REFUSE(gss_release_oid)
HORA_REFUSE(gss_release_oid_set)
HORA_REFUSE(gss_test_oid_set_member)
HORA_REFUSE(gss_verify_mic)

extern void* GSS_C_NT_USER_NAME;
extern void* GSS_C_NT_HOSTBASED_SERVICE;
void* GSS_C_NT_USER_NAME = NULL;
void* GSS_C_NT_HOSTBASED_SERVICE = NULL;
