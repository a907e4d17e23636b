/* A DLL that imports what the kernel host has not. */
#include "user.h"

IMPORT HANDLE CreateThread(PVOID security, SIZE_T stack, PVOID start, PVOID parameter, DWORD flags, DWORD *number);

BOOL DllMain(PVOID module, DWORD reason, PVOID reserved)
{
    (void)module;
    (void)reserved;
    return reason != 1 || CreateThread(NULL, 0, NULL, NULL, 0, NULL) != NULL;
}
