// Version 3 brings its own main().
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include "tests/support/catch.h"
#endif
