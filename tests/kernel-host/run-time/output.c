/* Standard output, standard error, and text into buffers. Output is not buffered, so that what was printed before a fault is seen. */
#include "run_time.h"

#define STREAMS 3
#define STD_OUTPUT ((unsigned)-11)
#define STD_ERROR ((unsigned)-12)
#define END_OF_FILE (-1)
#define ON_STACK 512

/* Options of the universal run-time's functions. */
#define LEGACY_NULL_TERMINATION 1
#define STANDARD_SNPRINTF 2

/* struct _iobuf: programs know its size. */
typedef struct {
    char *next;
    int left;
    char *base;
    int flags;
    int file;
    int character;
    int size;
    char *name;
} stream;

stream _iob[STREAMS] = {{.file = 0}, {.file = 1}, {.file = 2}};

int __mingw_vsnprintf(char *text, size_t size, const char *format, va_list arguments);
int __mingw_vsnwprintf(uint16_t *text, size_t size, const uint16_t *format, va_list arguments);

stream *__iob_func(void) {
    return _iob;
}

stream *__acrt_iob_func(unsigned index) {
    return &_iob[index];
}

static int put(int file, const char *bytes, size_t length) {
    unsigned written = 0;
    if (file != 1 && file != 2) {
        *_errno() = EBADF;
        return 0;
    }
    return WriteFile(GetStdHandle(file == 1 ? STD_OUTPUT : STD_ERROR), bytes, (unsigned)length, &written, NULL);
}

size_t fwrite(const void *from, size_t size, size_t count, stream *to) {
    return put(to->file, from, size * count) ? count : 0;
}

int _write(int file, const void *bytes, unsigned length) {
    return put(file, bytes, length) ? (int)length : -1;
}

int fputc(int character, stream *to) {
    char byte = (char)character;
    return put(to->file, &byte, 1) ? (unsigned char)byte : END_OF_FILE;
}

int putchar(int character) {
    return fputc(character, &_iob[1]);
}

int fputs(const char *text, stream *to) {
    return put(to->file, text, strlen(text)) ? 0 : END_OF_FILE;
}

int puts(const char *text) {
    size_t length = strlen(text);
    char *line = malloc(length + 1);
    memcpy(line, text, length);
    line[length] = '\n';
    int written = put(1, line, length + 1);
    free(line);
    return written ? 0 : END_OF_FILE;
}

int fflush(stream *of) {
    (void)of;
    return 0;
}

int _fileno(stream *of) {
    return of->file;
}

int _isatty(int file) {
    (void)file;
    return 0;
}

int _setmode(int file, int mode) {
    (void)file, (void)mode;
    return 0x4000;
}

int setvbuf(stream *of, char *buffer, int mode, size_t size) {
    (void)of, (void)buffer, (void)mode, (void)size;
    return 0;
}

void setbuf(stream *of, char *buffer) {
    (void)of, (void)buffer;
}

int ferror(stream *of) {
    (void)of;
    return 0;
}

void clearerr(stream *of) {
    (void)of;
}

void _lock_file(stream *of) {
    (void)of;
}

/* Files are not modelled, and the standard input is empty. */
stream *fopen(const char *name, const char *mode) {
    (void)name, (void)mode;
    *_errno() = ENOENT;
    return NULL;
}

int fopen_s(stream **to, const char *name, const char *mode) {
    *to = fopen(name, mode);
    return ENOENT;
}

int fclose(stream *of) {
    (void)of;
    return 0;
}

int feof(stream *of) {
    (void)of;
    return 1;
}

int fgetc(stream *from) {
    (void)from;
    return END_OF_FILE;
}

int getchar(void) {
    return END_OF_FILE;
}

int ungetc(int character, stream *to) {
    (void)character, (void)to;
    return END_OF_FILE;
}

char *fgets(char *line, int size, stream *from) {
    (void)line, (void)size, (void)from;
    return NULL;
}

size_t fread(void *to, size_t size, size_t count, stream *from) {
    (void)to, (void)size, (void)count, (void)from;
    return 0;
}

int vfprintf(stream *to, const char *format, va_list arguments) {
    char small[ON_STACK];
    va_list again;
    va_copy(again, arguments);
    int length = __mingw_vsnprintf(small, sizeof small, format, arguments);
    if (length >= (int)sizeof small) {
        char *large = malloc((size_t)length + 1);
        __mingw_vsnprintf(large, (size_t)length + 1, format, again);
        put(to->file, large, (size_t)length);
        free(large);
    } else if (length > 0) {
        put(to->file, small, (size_t)length);
    }
    va_end(again);
    return length;
}

int vprintf(const char *format, va_list arguments) {
    return vfprintf(&_iob[1], format, arguments);
}

int printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfprintf(&_iob[1], format, arguments);
    va_end(arguments);
    return length;
}

int fprintf(stream *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfprintf(to, format, arguments);
    va_end(arguments);
    return length;
}

/* Wide text goes out byte by byte, what is no ASCII as a question mark. */
static int put_wide(int file, const uint16_t *text, size_t length) {
    char *bytes = malloc(length + 1);
    for (size_t index = 0; index < length; index++) {
        bytes[index] = text[index] < 0x80 ? (char)text[index] : '?';
    }
    int written = put(file, bytes, length);
    free(bytes);
    return written;
}

#define LONGEST_WIDE 4096

int vfwprintf(stream *to, const uint16_t *format, va_list arguments) {
    uint16_t *text = malloc(2 * LONGEST_WIDE);
    int length = __mingw_vsnwprintf(text, LONGEST_WIDE, format, arguments);
    if (length > 0) {
        put_wide(to->file, text, length < LONGEST_WIDE ? (size_t)length : LONGEST_WIDE - 1);
    }
    free(text);
    return length;
}

int vwprintf(const uint16_t *format, va_list arguments) {
    return vfwprintf(&_iob[1], format, arguments);
}

int wprintf(const uint16_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfwprintf(&_iob[1], format, arguments);
    va_end(arguments);
    return length;
}

int fwprintf(stream *to, const uint16_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfwprintf(to, format, arguments);
    va_end(arguments);
    return length;
}

int fputws(const uint16_t *text, stream *to) {
    return put_wide(to->file, text, wcslen(text)) ? 0 : END_OF_FILE;
}

/* Microsoft's own: -1 and no zero at the end when the text does not fit. */
int _vsnprintf(char *text, size_t size, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = __mingw_vsnprintf(NULL, 0, format, arguments);
    if (length < 0 || text == NULL || (size_t)length < size) {
        length = text == NULL ? length : __mingw_vsnprintf(text, size, format, again);
    } else {
        char *whole = malloc((size_t)length + 1);
        __mingw_vsnprintf(whole, (size_t)length + 1, format, again);
        memcpy(text, whole, size);
        free(whole);
        length = (size_t)length == size ? length : -1;
    }
    va_end(again);
    return length;
}

int _snprintf(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = _vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

int vsnprintf(char *text, size_t size, const char *format, va_list arguments) {
    return __mingw_vsnprintf(text, size, format, arguments);
}

int snprintf(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = __mingw_vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

int vsprintf(char *text, const char *format, va_list arguments) {
    return __mingw_vsnprintf(text, 0x7FFFFFFF, format, arguments);
}

int sprintf(char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsprintf(text, format, arguments);
    va_end(arguments);
    return length;
}

/* The checked ones end the program when the text does not fit. */
int vsprintf_s(char *text, size_t size, const char *format, va_list arguments) {
    int length = __mingw_vsnprintf(text, size, format, arguments);
    if (length < 0 || (size_t)length >= size) {
        HostProgramFails("sprintf_s is given a buffer that is too small");
    }
    return length;
}

int sprintf_s(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsprintf_s(text, size, format, arguments);
    va_end(arguments);
    return length;
}

int _vsnprintf_s(char *text, size_t size, size_t most, const char *format, va_list arguments) {
    size_t room = most == SIZE_MAX || most + 1 > size ? size : most + 1;
    int length = __mingw_vsnprintf(text, room, format, arguments);
    return length < 0 || (size_t)length >= room ? -1 : length;
}

int _snprintf_s(char *text, size_t size, size_t most, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = _vsnprintf_s(text, size, most, format, arguments);
    va_end(arguments);
    return length;
}

int _vsnwprintf(uint16_t *text, size_t size, const uint16_t *format, va_list arguments) {
    int length = __mingw_vsnwprintf(text, size, format, arguments);
    return length < 0 || (size_t)length >= size ? -1 : length;
}

int _snwprintf(uint16_t *text, size_t size, const uint16_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = _vsnwprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

int swprintf_s(uint16_t *text, size_t size, const uint16_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = _vsnwprintf(text, size, format, arguments);
    va_end(arguments);
    return length;
}

/* The universal run-time has one function for each kind; its headers make the others of them. */
int __stdio_common_vfprintf(uint64_t options, stream *to, const char *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return vfprintf(to, format, arguments);
}

int __stdio_common_vfwprintf(uint64_t options, stream *to, const uint16_t *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return vfwprintf(to, format, arguments);
}

int __stdio_common_vsprintf(uint64_t options, char *text, size_t size, const char *format, void *locale, va_list arguments) {
    (void)locale;
    if (options & STANDARD_SNPRINTF) {
        return __mingw_vsnprintf(text, size, format, arguments);
    }
    return size == SIZE_MAX ? vsprintf(text, format, arguments) : _vsnprintf(text, size, format, arguments);
}

int __stdio_common_vsprintf_s(uint64_t options, char *text, size_t size, const char *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return vsprintf_s(text, size, format, arguments);
}

int __stdio_common_vsnprintf_s(
    uint64_t options, char *text, size_t size, size_t most, const char *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return _vsnprintf_s(text, size, most, format, arguments);
}

int __stdio_common_vswprintf(uint64_t options, uint16_t *text, size_t size, const uint16_t *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return _vsnwprintf(text, size, format, arguments);
}

int __stdio_common_vswprintf_s(uint64_t options, uint16_t *text, size_t size, const uint16_t *format, void *locale, va_list arguments) {
    (void)options, (void)locale;
    return _vsnwprintf(text, size, format, arguments);
}

/* Reading text. */
int __mingw_vsscanf(const char *text, const char *format, va_list arguments);

int vsscanf(const char *text, const char *format, va_list arguments) {
    return __mingw_vsscanf(text, format, arguments);
}

int sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = __mingw_vsscanf(text, format, arguments);
    va_end(arguments);
    return count;
}

int __stdio_common_vsscanf(uint64_t options, const char *text, size_t size, const char *format, void *locale, va_list arguments) {
    (void)options, (void)size, (void)locale;
    return __mingw_vsscanf(text, format, arguments);
}

void perror(const char *text) {
    fprintf(&_iob[2], "%s: error %d\n", text, *_errno());
}

int fputwc(int unit, stream *to) {
    uint16_t one = (uint16_t)unit;
    return put_wide(to->file, &one, 1) ? unit : 0xFFFF;
}

/* By the names that mingw-w64's own functions call. */
int __ms_fwprintf(stream *to, const uint16_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfwprintf(to, format, arguments);
    va_end(arguments);
    return length;
}

int getc(stream *from) {
    return fgetc(from);
}
