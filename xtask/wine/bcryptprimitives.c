/* Wine before 9.0 has no bcryptprimitives.dll, of which Rust's standard library imports one function: random bytes. Only `cargo xtask wine`
 * uses this one. */
#include <windows.h>

#define RtlGenRandom SystemFunction036
__declspec(dllimport) BOOLEAN NTAPI RtlGenRandom(void *bytes, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *bytes, SIZE_T length) { return RtlGenRandom(bytes, (ULONG)length); }
