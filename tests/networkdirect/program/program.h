/* What the files of the program share. */
#pragma once

#include <windows.h>

/* Only the DLL exports anything. */
#ifdef PROGRAM_IS_LIBRARY
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED
#endif

typedef HRESULT(STDMETHODCALLTYPE *get_class_object)(const CLSID *, const IID *, void **);

/* Runs a command with a provider: 0, or a line of program.c. */
EXPORTED int run_program(get_class_object provider, const char *name);

/* What a DLL does without a driver: 0, or a line of probe.c. */
int probe(const WCHAR *path);

/* A line on the standard output with a number in hexadecimal digits. */
void say_number(const char *text, UINT64 number);

/* Hands on a line that is not 0. */
#define PASSES(call)                                                                                                        \
    do {                                                                                                                    \
        int line = (call);                                                                                                  \
        if (line != 0) {                                                                                                    \
            return line;                                                                                                    \
        }                                                                                                                   \
    } while (0)
