/*
 * The program as Windows starts it:
 *
 *     nd-program DLL COMMAND | probe
 *
 * The commands are those of program.c; `probe` needs no driver. The exit code is 0; 1 when something was not as it should be, of which the
 * line is printed; 2 for a wrong command
 * line; 3 when the DLL cannot be loaded.
 */
#include "program.h"

#define NOT_AS_EXPECTED 1
#define BAD_COMMAND_LINE 2
#define NO_PROVIDER 3
#define LONGEST 260

/* The next word, or what stands between quotation marks. Returns what is behind it. */
static const wchar_t *take_word(const wchar_t *text, wchar_t *word) {
    size_t length = 0;
    while (*text == L' ' || *text == L'\t') {
        text++;
    }
    wchar_t end = *text == L'"' ? L'"' : L' ';
    text += end == L'"';
    while (*text != 0 && *text != end && length < LONGEST - 1) {
        word[length++] = *text++;
    }
    word[length] = 0;
    return *text == L'"' ? text + 1 : text;
}

void program_main(void) {
    static wchar_t program[LONGEST], dll[LONGEST], command[LONGEST];
    char name[LONGEST];
    size_t length = 0;
    take_word(take_word(take_word(GetCommandLineW(), program), dll), command);
    do {
        name[length] = (char)command[length];
    } while (command[length++] != 0);
    if (command[0] == 0) {
        ExitProcess(BAD_COMMAND_LINE);
    }
    HMODULE module = LoadLibraryW(dll);
    get_class_object provider = module == NULL ? NULL : (get_class_object)(void *)GetProcAddress(module, "DllGetClassObject");
    if (provider == NULL) {
        ExitProcess(NO_PROVIDER);
    }
    if (lstrcmpW(command, L"probe") != 0) {
        ExitProcess(run_program(provider, name) == 0 ? 0 : NOT_AS_EXPECTED);
    }
    FreeLibrary(module);
    ExitProcess(probe(dll) == 0 ? 0 : NOT_AS_EXPECTED);
}
