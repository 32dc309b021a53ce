// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/secrets.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("secrets: text that looks like one is blanked, the text around it stays") {
  const SecretFilter filter({{"MY_TOKEN", "abcdef123"}, {"PASSWORD", "ab"}, {"HOME", "/home/me"}});
  const auto clean = [&](const char* text) { return filter.clean(text); };
  CHECK(clean("it said abcdef123, twice abcdef123") == "it said ***, twice ***");
  CHECK(clean("/home/me has ab") == "/home/me has ab");
  CHECK(clean("lr=0.1 api_key=xyz epochs=3") == "lr=0.1 api_key=*** epochs=3");
  CHECK(clean("{\"password\": \"xyz\", \"user\": \"me\"}") ==
        "{\"password\": \"***\", \"user\": \"me\"}");
  CHECK(clean("run --token xyz --lr 1") == "run --token *** --lr 1");
  CHECK(clean("run --token --lr 1") == "run --token --lr 1");
  CHECK(clean("the secret of success") == "the secret of success");
  CHECK(clean("Authorization: Bearer a.b.c next") == "Authorization: Bearer *** next");
  CHECK(clean("got Bearer a.b.c") == "got Bearer ***");
  CHECK(clean("https://me:pw@h/x and https://h/x@y") == "https://me:***@h/x and https://h/x@y");
  CHECK(clean("key ghp_0123456789abcdef!") == "key ***!");
  CHECK(clean("HORA_RUN_KEY=0123456789abcdef") == "HORA_RUN_KEY=***");
  CHECK(clean("whisk-eyJ and sk-short") == "whisk-eyJ and sk-short");
  CHECK(clean("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\nend") ==
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nend");
  CHECK(clean("-----BEGIN PRIVATE KEY-----\nAAAA") == "-----BEGIN PRIVATE KEY-----***");
  for (const char* odd :
       {"", "=", "token", "token=", "token:", "--token", "://", "http://@", "Bearer", "Bearer "}) {
    CHECK(clean(odd) == odd);
  }
}
