/* Functions of kernel32 that need nothing of the host: text, names in ANSI, memory by older names, the console, settings that change nothing. */
#include "run_time.h"

#define LONGEST_PATH 1024
#define ERROR_INSUFFICIENT_BUFFER 122
#define ERROR_ENVVAR_NOT_FOUND 203
#define ERROR_NOT_SUPPORTED 50
#define ERROR_INVALID_HANDLE 6
#define CODE_PAGE_UTF8 65001
#define CODE_PAGE_ANSI 1252
#define HEAP_ZERO_MEMORY 8

void *CreateFileW(const uint16_t *name, unsigned access, unsigned share, void *security, unsigned disposition, unsigned flags, void *from);
void *CreateEventW(void *security, int manual, int initial, const uint16_t *name);
void *CreateMutexW(void *security, int owned, const uint16_t *name);
void *CreateSemaphoreW(void *security, int initial, int most, const uint16_t *name);
void *LoadLibraryExW(const uint16_t *name, void *file, unsigned flags);
void *GetModuleHandleW(const uint16_t *name);
unsigned GetModuleFileNameW(void *module, uint16_t *name, unsigned size);
unsigned WaitForSingleObject(void *handle, unsigned milliseconds);
unsigned WaitForMultipleObjects(unsigned count, void *const *handles, int all, unsigned milliseconds);
int CancelIoEx(void *file, void *overlapped);
int snprintf(char *text, size_t size, const char *format, ...);
int _stricmp(const char *first, const char *second);
int _wcsicmp(const uint16_t *first, const uint16_t *second);
int strcmp(const char *first, const char *second);
int wcscmp(const uint16_t *first, const uint16_t *second);

/* Every text of a program in bytes is taken as Latin-1. */
static const uint16_t *wide_of(const char *text, uint16_t *wide) {
    size_t index = 0;
    if (text == NULL) {
        return NULL;
    }
    for (; index < LONGEST_PATH - 1 && text[index] != 0; index++) {
        wide[index] = (unsigned char)text[index];
    }
    wide[index] = 0;
    return wide;
}

void *CreateFileA(const char *name, unsigned access, unsigned share, void *security, unsigned disposition, unsigned flags, void *from) {
    uint16_t wide[LONGEST_PATH];
    return CreateFileW(wide_of(name, wide), access, share, security, disposition, flags, from);
}

void *CreateEventA(void *security, int manual, int initial, const char *name) {
    uint16_t wide[LONGEST_PATH];
    return CreateEventW(security, manual, initial, wide_of(name, wide));
}

void *CreateEventExW(void *security, const uint16_t *name, unsigned flags, unsigned access) {
    (void)access;
    return CreateEventW(security, (int)(flags & 1), (int)(flags >> 1 & 1), name);
}

void *CreateEventExA(void *security, const char *name, unsigned flags, unsigned access) {
    (void)access;
    return CreateEventA(security, (int)(flags & 1), (int)(flags >> 1 & 1), name);
}

void *CreateMutexA(void *security, int owned, const char *name) {
    uint16_t wide[LONGEST_PATH];
    return CreateMutexW(security, owned, wide_of(name, wide));
}

void *CreateSemaphoreA(void *security, int initial, int most, const char *name) {
    uint16_t wide[LONGEST_PATH];
    return CreateSemaphoreW(security, initial, most, wide_of(name, wide));
}

void *LoadLibraryW(const uint16_t *name) {
    return LoadLibraryExW(name, NULL, 0);
}

void *LoadLibraryExA(const char *name, void *file, unsigned flags) {
    uint16_t wide[LONGEST_PATH];
    return LoadLibraryExW(wide_of(name, wide), file, flags);
}

void *LoadLibraryA(const char *name) {
    return LoadLibraryExA(name, NULL, 0);
}

void *GetModuleHandleA(const char *name) {
    uint16_t wide[LONGEST_PATH];
    return GetModuleHandleW(wide_of(name, wide));
}

int GetModuleHandleExW(unsigned flags, const uint16_t *name, void **to) {
    (void)flags;
    *to = GetModuleHandleW(name);
    return *to != NULL;
}

int GetModuleHandleExA(unsigned flags, const char *name, void **to) {
    (void)flags;
    *to = GetModuleHandleA(name);
    return *to != NULL;
}

unsigned GetModuleFileNameA(void *module, char *name, unsigned size) {
    uint16_t wide[LONGEST_PATH];
    unsigned length = GetModuleFileNameW(module, wide, LONGEST_PATH), index = 0;
    for (; index < length && index + 1 < size; index++) {
        name[index] = (char)wide[index];
    }
    name[index] = 0;
    return index;
}

int DisableThreadLibraryCalls(void *module) {
    (void)module;
    return 1;
}

unsigned WaitForSingleObjectEx(void *handle, unsigned milliseconds, int alertable) {
    (void)alertable;
    return WaitForSingleObject(handle, milliseconds);
}

unsigned WaitForMultipleObjectsEx(unsigned count, void *const *handles, int all, unsigned milliseconds, int alertable) {
    (void)alertable;
    return WaitForMultipleObjects(count, handles, all, milliseconds);
}

unsigned SleepEx(unsigned milliseconds, int alertable) {
    (void)alertable;
    Sleep(milliseconds);
    return 0;
}

int CancelIo(void *file) {
    return CancelIoEx(file, NULL);
}

unsigned GetTickCount(void) {
    return (unsigned)GetTickCount64();
}

/* Memory. */
void *LocalAlloc(unsigned flags, size_t bytes) {
    return HeapAlloc(GetProcessHeap(), flags & 0x40 ? HEAP_ZERO_MEMORY : 0, bytes);
}

void *LocalFree(void *block) {
    HeapFree(GetProcessHeap(), 0, block);
    return NULL;
}

void *HeapCreate(unsigned flags, size_t initial, size_t most) {
    (void)flags, (void)initial, (void)most;
    return GetProcessHeap();
}

int HeapDestroy(void *heap) {
    (void)heap;
    return 1;
}

int HeapSetInformation(void *heap, int kind, void *information, size_t length) {
    (void)heap, (void)kind, (void)information, (void)length;
    return 1;
}

void *EncodePointer(void *pointer) {
    return pointer;
}

/* Text. */
int lstrlenA(const char *text) {
    return text == NULL ? 0 : (int)strlen(text);
}

int lstrlenW(const uint16_t *text) {
    return text == NULL ? 0 : (int)wcslen(text);
}

static int unit_of_utf8(const unsigned char *from, int left, unsigned *character) {
    int length = *from < 0x80 ? 1 : *from >= 0xF0 ? 4 : *from >= 0xE0 ? 3 : 2;
    *character = length == 1 ? *from : *from & (0x7Fu >> length);
    if (length > left) {
        *character = 0xFFFD;
        return left;
    }
    for (int index = 1; index < length; index++) {
        *character = *character << 6 | (from[index] & 0x3F);
    }
    return length;
}

int MultiByteToWideChar(unsigned page, unsigned flags, const char *from, int length, uint16_t *to, int size) {
    (void)flags;
    int made = 0;
    length = length < 0 ? (int)strlen(from) + 1 : length;
    for (int index = 0; index < length;) {
        unsigned character = (unsigned char)from[index];
        index += page == CODE_PAGE_UTF8 ? unit_of_utf8((const unsigned char *)from + index, length - index, &character) : 1;
        int units = character > 0xFFFF ? 2 : 1;
        if (size != 0 && made + units > size) {
            SetLastError(ERROR_INSUFFICIENT_BUFFER);
            return 0;
        }
        if (size != 0 && units == 1) {
            to[made] = (uint16_t)character;
        } else if (size != 0) {
            to[made] = (uint16_t)(0xD800 + ((character - 0x10000) >> 10));
            to[made + 1] = (uint16_t)(0xDC00 + ((character - 0x10000) & 0x3FF));
        }
        made += units;
    }
    return made;
}

static int utf8_of(unsigned character, char *bytes) {
    if (character < 0x80) {
        bytes[0] = (char)character;
        return 1;
    }
    int length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (int index = length - 1; index > 0; index--, character >>= 6) {
        bytes[index] = (char)(0x80 | (character & 0x3F));
    }
    bytes[0] = (char)(0xF00 >> length | character);
    return length;
}

int WideCharToMultiByte(
    unsigned page, unsigned flags, const uint16_t *from, int length, char *to, int size, const char *otherwise, int *used) {
    (void)flags, (void)otherwise;
    int made = 0;
    length = length < 0 ? (int)wcslen(from) + 1 : length;
    for (int index = 0; index < length; index++) {
        unsigned character = from[index];
        char bytes[4] = {character < 0x100 ? (char)character : '?'};
        if (page == CODE_PAGE_UTF8 && character >= 0xD800 && character < 0xDC00 && index + 1 < length) {
            character = 0x10000 + ((character - 0xD800) << 10) + (from[++index] - 0xDC00u);
        }
        int count = page == CODE_PAGE_UTF8 ? utf8_of(character, bytes) : 1;
        if (size != 0 && made + count > size) {
            SetLastError(ERROR_INSUFFICIENT_BUFFER);
            return 0;
        }
        if (size != 0) {
            memcpy(to + made, bytes, (size_t)count);
        }
        made += count;
    }
    if (used != NULL) {
        *used = 0;
    }
    return made;
}

int IsDBCSLeadByteEx(unsigned page, unsigned char byte) {
    (void)page, (void)byte;
    return 0;
}

unsigned GetACP(void) {
    return CODE_PAGE_ANSI;
}

int IsValidCodePage(unsigned page) {
    return page == CODE_PAGE_UTF8 || page == CODE_PAGE_ANSI;
}

/* FormatMessage: the number of an error of the system, or the text that is given. */
#define ALLOCATE_BUFFER 0x100
#define FROM_STRING 0x400

unsigned FormatMessageA(unsigned flags, const void *source, unsigned message, unsigned language, char *to, unsigned size, va_list *arguments) {
    (void)language, (void)arguments;
    char text[256];
    snprintf(text, sizeof text, flags & FROM_STRING ? "%s" : "error %2$u", flags & FROM_STRING ? (const char *)source : "", message);
    if (!(flags & FROM_STRING)) {
        snprintf(text, sizeof text, "error %u (0x%08X)\r\n", message, message);
    }
    unsigned length = (unsigned)strlen(text);
    if (flags & ALLOCATE_BUFFER) {
        *(char **)(void *)to = LocalAlloc(0, length + 1);
        to = *(char **)(void *)to;
    } else if (length >= size) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    memcpy(to, text, length + 1);
    return length;
}

unsigned FormatMessageW(
    unsigned flags, const void *source, unsigned message, unsigned language, uint16_t *to, unsigned size, va_list *arguments) {
    (void)source, (void)language, (void)arguments;
    char text[64];
    snprintf(text, sizeof text, "error %u (0x%08X)\r\n", message, message);
    unsigned length = (unsigned)strlen(text);
    if (flags & ALLOCATE_BUFFER) {
        *(uint16_t **)(void *)to = LocalAlloc(0, 2 * (length + 1));
        to = *(uint16_t **)(void *)to;
    } else if (length >= size) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    for (unsigned index = 0; index <= length; index++) {
        to[index] = (unsigned char)text[index];
    }
    return length;
}

/* The environment: where Windows is. */
static const struct {
    const char *name, *value;
} environment[] = {{"SystemRoot", "C:\\Windows"}, {"windir", "C:\\Windows"}, {"COMPUTERNAME", "KERNEL-HOST"}};

static const char *variable(const char *name, size_t length) {
    int _strnicmp(const char *, const char *, size_t);
    for (size_t index = 0; index < sizeof environment / sizeof *environment; index++) {
        if (strlen(environment[index].name) == length && _strnicmp(environment[index].name, name, length) == 0) {
            return environment[index].value;
        }
    }
    return NULL;
}

unsigned GetEnvironmentVariableA(const char *name, char *to, unsigned size) {
    const char *value = variable(name, strlen(name));
    if (value == NULL) {
        SetLastError(ERROR_ENVVAR_NOT_FOUND);
        return 0;
    }
    unsigned length = (unsigned)strlen(value);
    if (length >= size) {
        return length + 1;
    }
    memcpy(to, value, length + 1);
    return length;
}

static void narrow_of(const uint16_t *text, char *narrow) {
    size_t index = 0;
    for (; index < LONGEST_PATH - 1 && text[index] != 0; index++) {
        narrow[index] = text[index] < 0x100 ? (char)text[index] : '?';
    }
    narrow[index] = 0;
}

unsigned GetEnvironmentVariableW(const uint16_t *name, uint16_t *to, unsigned size) {
    char narrow[LONGEST_PATH], value[LONGEST_PATH];
    narrow_of(name, narrow);
    unsigned length = GetEnvironmentVariableA(narrow, value, sizeof value);
    if (length == 0 || length >= size) {
        return length == 0 ? 0 : length + 1;
    }
    for (unsigned index = 0; index <= length; index++) {
        to[index] = (unsigned char)value[index];
    }
    return length;
}

/* The length with the zero; what does not fit is not written. */
unsigned ExpandEnvironmentStringsA(const char *from, char *to, unsigned size) {
    unsigned made = 0;
    while (*from != 0) {
        const char *end = from + 1, *value = NULL;
        if (*from == '%') {
            while (*end != 0 && *end != '%') {
                end++;
            }
            value = *end == '%' ? variable(from + 1, (size_t)(end - from - 1)) : NULL;
        }
        size_t length = value == NULL ? 1 : strlen(value);
        for (size_t index = 0; index < length; index++, made++) {
            if (made < size) {
                to[made] = value == NULL ? *from : value[index];
            }
        }
        from = value == NULL ? from + 1 : end + 1;
    }
    if (made < size) {
        to[made] = 0;
    }
    return made + 1;
}

unsigned ExpandEnvironmentStringsW(const uint16_t *from, uint16_t *to, unsigned size) {
    char narrow[LONGEST_PATH], expanded[LONGEST_PATH];
    narrow_of(from, narrow);
    unsigned length = ExpandEnvironmentStringsA(narrow, expanded, sizeof expanded);
    for (unsigned index = 0; index < length && index < size && index < sizeof expanded; index++) {
        to[index] = (unsigned char)expanded[index];
    }
    return length;
}

static uint16_t no_strings[2];

uint16_t *GetEnvironmentStringsW(void) {
    return no_strings;
}

int FreeEnvironmentStringsW(uint16_t *strings) {
    (void)strings;
    return 1;
}

/* The start of the program: nothing was asked of its window, and it has the handles of GetStdHandle. */
struct startup_information {
    unsigned size;
    void *reserved[3];
    unsigned numbers[8];
    unsigned short show, length;
    void *more, *handles[3];
};

void GetStartupInfoW(struct startup_information *information) {
    memset(information, 0, sizeof *information);
    information->size = sizeof *information;
}

/* The console is a pipe. */
#define FILE_TYPE_PIPE 3

unsigned GetFileType(void *file) {
    (void)file;
    return FILE_TYPE_PIPE;
}

int GetConsoleMode(void *console, unsigned *mode) {
    (void)console, (void)mode;
    SetLastError(ERROR_INVALID_HANDLE);
    return 0;
}

unsigned GetConsoleOutputCP(void) {
    return CODE_PAGE_UTF8;
}

int FlushFileBuffers(void *file) {
    (void)file;
    return 1;
}

/* Settings that change nothing here. */
int ReturnsTrue(void) {
    return 1;
}

void *ReturnsNull(void) {
    return NULL;
}

int IsProcessorFeaturePresent(unsigned feature) {
    /* PF_FASTFAIL_AVAILABLE would have programs end by an interrupt; compare-exchange of 16 bytes, SSE2. */
    return feature == 10 || feature == 14;
}

int NotSupported(void) {
    SetLastError(ERROR_NOT_SUPPORTED);
    return 0;
}

/* Structured exceptions: what would walk the stack finds nothing, and one that is raised ends the program. */
void RtlCaptureContext(void *context) {
    memset(context, 0, 1232);
}

void RtlUnwindEx(void) {
    HostProgramFails("it unwinds its stack (RtlUnwindEx), which the host does not model");
}

void RaiseException(unsigned code, unsigned flags, unsigned count, const uintptr_t *arguments) {
    (void)flags, (void)count, (void)arguments;
    char text[96];
    snprintf(text, sizeof text, "it has raised the exception 0x%08X; the host does not model structured exceptions", code);
    HostProgramFails(text);
}

int UnhandledExceptionFilter(void *pointers) {
    (void)pointers;
    HostProgramFails("it has met an exception that it does not handle");
}
