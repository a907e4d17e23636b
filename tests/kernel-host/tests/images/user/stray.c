/* A DLL that imports what the kernel host has not. */
#include "user.h"

IMPORT PVOID CreateFiber(SIZE_T stack, PVOID start, PVOID parameter);

BOOL DllMain(PVOID module, DWORD reason, PVOID reserved)
{
    (void)module;
    (void)reserved;
    return reason != 1 || CreateFiber(0, NULL, NULL) != NULL;
}
