// SPDX-License-Identifier: Apache-2.0
// As rendezvous/old_glibc/old_glibc.cpp, for functions of libm: these references keep it even
// without callers.

// exp and its relatives have always existed; 2.29 brought versions of them that do not set errno by
// a wrapper. These names bind to the old versions.
#if defined(__x86_64__)
#define HORA_FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define HORA_FIRST_VERSION "GLIBC_2.17"
#else
#error "which version of glibc was the first on this architecture?"
#endif
#define HORA_OLD_MATH(name) __asm__(".symver hora_old_" #name "," #name "@" HORA_FIRST_VERSION)
HORA_OLD_MATH(exp);
HORA_OLD_MATH(exp2);
HORA_OLD_MATH(log);
HORA_OLD_MATH(log2);
HORA_OLD_MATH(pow);

extern "C" {

double hora_old_exp(double x);
double hora_old_exp2(double x);
double hora_old_log(double x);
double hora_old_log2(double x);
double hora_old_pow(double x, double y);

double exp(double x) { return hora_old_exp(x); }               // 2.29
double exp2(double x) { return hora_old_exp2(x); }             // 2.29
double log(double x) { return hora_old_log(x); }               // 2.29
double log2(double x) { return hora_old_log2(x); }             // 2.29
double pow(double x, double y) { return hora_old_pow(x, y); }  // 2.29

}  // extern "C"
