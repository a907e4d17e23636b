/* The start and the end of a program: its arguments, its initialisers, what it has asked for at its end. */
#include "run_time.h"

#define MOST_AT_EXIT 256
#define DLL_PROCESS_ATTACH 1

typedef void (*routine)(void);
typedef int (*checked_routine)(void);

/* Variables that programs import. */
int _fmode;
int _commode;
char *_acmdln;
uint16_t *_wcmdln;
int __argc;
char **__argv;
uint16_t **__wargv;
char **__initenv;
uint16_t **__winitenv;
char **_environ;
uint16_t **_wenviron;
char *_pgmptr;

static char *no_environment[1];
static uint16_t *no_wide_environment[1];

static routine at_exit[MOST_AT_EXIT];
static unsigned at_exit_count;

/* One word of a command line, by the rules of Microsoft's run-time: backslashes mean themselves but before a quotation mark. */
static const char *take_word(const char *from, char *word) {
    int quoted = 0;
    for (; *from != 0 && (quoted || (*from != ' ' && *from != '\t')); from++) {
        size_t backslashes = 0;
        while (*from == '\\') {
            backslashes++;
            from++;
        }
        size_t kept = *from == '"' ? backslashes / 2 : backslashes;
        for (size_t index = 0; index < kept; index++) {
            *word++ = '\\';
        }
        if (*from == '"' && backslashes % 2 == 0) {
            if (quoted && from[1] == '"') {
                *word++ = *from++;
            } else {
                quoted = !quoted;
            }
        } else if (*from == 0 || (!quoted && (*from == ' ' || *from == '\t'))) {
            break;
        } else {
            *word++ = *from;
        }
    }
    *word = 0;
    return from;
}

static uint16_t *widened(const char *text) {
    size_t length = strlen(text);
    uint16_t *wide = malloc(2 * (length + 1));
    for (size_t index = 0; index <= length; index++) {
        wide[index] = (unsigned char)text[index];
    }
    return wide;
}

static void read_command_line(void) {
    const char *line = GetCommandLineA();
    size_t length = strlen(line);
    char *words = malloc(length + 2);
    __argv = calloc(length + 2, sizeof *__argv);
    __wargv = calloc(length + 2, sizeof *__wargv);
    while (*line == ' ' || *line == '\t') {
        line++;
    }
    while (*line != 0) {
        __argv[__argc] = words;
        line = take_word(line, words);
        __wargv[__argc++] = widened(words);
        words += strlen(words) + 1;
        while (*line == ' ' || *line == '\t') {
            line++;
        }
    }
    _acmdln = (char *)GetCommandLineA();
    _wcmdln = (uint16_t *)GetCommandLineW();
    _pgmptr = __argc == 0 ? _acmdln : __argv[0];
    __initenv = _environ = no_environment;
    __winitenv = _wenviron = no_wide_environment;
}

int __getmainargs(int *count, char ***words, char ***environment, int expand, int *mode) {
    (void)expand, (void)mode;
    *count = __argc;
    *words = __argv;
    *environment = _environ;
    return 0;
}

int __wgetmainargs(int *count, uint16_t ***words, uint16_t ***environment, int expand, int *mode) {
    (void)expand, (void)mode;
    *count = __argc;
    *words = __wargv;
    *environment = _wenviron;
    return 0;
}

void _initterm(routine *from, routine *end) {
    for (; from < end; from++) {
        if (*from != NULL) {
            (*from)();
        }
    }
}

int _initterm_e(checked_routine *from, checked_routine *end) {
    int result = 0;
    for (; from < end && result == 0; from++) {
        result = *from == NULL ? 0 : (*from)();
    }
    return result;
}

int atexit(routine function) {
    if (at_exit_count == MOST_AT_EXIT) {
        return 1;
    }
    at_exit[at_exit_count++] = function;
    return 0;
}

routine _onexit(routine function) {
    return atexit(function) == 0 ? function : NULL;
}

/* Tables of functions of a module's own: first, last, end. */
int _initialize_onexit_table(void **table) {
    table[0] = table[1] = table[2] = NULL;
    return 0;
}

int _register_onexit_function(void **table, routine function) {
    (void)table;
    return atexit(function);
}

int _execute_onexit_table(void **table) {
    (void)table;
    return 0;
}

void _cexit(void) {
    while (at_exit_count > 0) {
        at_exit[--at_exit_count]();
    }
}

void _c_exit(void) {}

void exit(int code) {
    _cexit();
    ExitProcess((unsigned)code);
}

void _exit(int code) {
    ExitProcess((unsigned)code);
}

void abort(void) {
    HostProgramFails("it has called abort");
}

void _assert(const char *condition, const char *file, unsigned line) {
    int printf(const char *format, ...);
    printf("Assertion failed: %s, file %s, line %u\n", condition, file, line);
    abort();
}

void _wassert(const uint16_t *condition, const uint16_t *file, unsigned line) {
    int printf(const char *format, ...);
    printf("Assertion failed: %ls, file %ls, line %u\n", (const wchar_t *)condition, (const wchar_t *)file, line);
    abort();
}

void _amsg_exit(int number) {
    (void)number;
    HostProgramFails("its C run-time could not start it (_amsg_exit)");
}

void _purecall(void) {
    HostProgramFails("it has called a pure virtual function");
}

void terminate(void) {
    HostProgramFails("it has called terminate");
}

void _invalid_parameter_noinfo_noreturn(void) {
    HostProgramFails("it gives a function of the C run-time an invalid parameter");
}

void _invalid_parameter_noinfo(void) {
    HostProgramFails("it gives a function of the C run-time an invalid parameter");
}

void *_set_invalid_parameter_handler(void *handler) {
    (void)handler;
    return NULL;
}

/* What exceptions would need: one that is raised ends the program. */
int _CxxThrowException(void *object, void *type) {
    (void)object, (void)type;
    HostProgramFails("it has thrown a C++ exception, which the host does not model");
}

int __C_specific_handler(void *record, void *frame, void *context, void *dispatcher) {
    (void)record, (void)frame, (void)context, (void)dispatcher;
    return 1;
}

int __CxxFrameHandler3(void *record, void *frame, void *context, void *dispatcher) {
    return __C_specific_handler(record, frame, context, dispatcher);
}

int _XcptFilter(unsigned code, void *pointers) {
    (void)code, (void)pointers;
    return 0;
}

void **__current_exception(void) {
    static void *none;
    return &none;
}

void __std_terminate(void) {
    terminate();
}

void __std_exception_copy(const void **from, void **to) {
    to[0] = (void *)from[0];
    to[1] = NULL;
}

void __std_exception_destroy(void **data) {
    data[0] = NULL;
}

/* The start of a program that is built with the universal run-time. */
int _configure_narrow_argv(int mode) {
    (void)mode;
    return 0;
}

int _initialize_narrow_environment(void) {
    return 0;
}

char **_get_initial_narrow_environment(void) {
    return _environ;
}

uint16_t **_get_initial_wide_environment(void) {
    return _wenviron;
}

int *__p___argc(void) {
    return &__argc;
}

char ***__p___argv(void) {
    return &__argv;
}

uint16_t ***__p___wargv(void) {
    return &__wargv;
}

int *__p__commode(void) {
    return &_commode;
}

int *__p__fmode(void) {
    return &_fmode;
}

char **__p__acmdln(void) {
    return &_acmdln;
}

char ***__p__environ(void) {
    return &_environ;
}

uint16_t ***__p__wenviron(void) {
    return &_wenviron;
}

int _set_fmode(int mode) {
    _fmode = mode;
    return 0;
}

void __set_app_type(int type) {
    (void)type;
}

/* Settings that change nothing here: floating point errors, locales a thread, handlers. */
int _configthreadlocale(int kind) {
    (void)kind;
    return 2;
}

int _no_setting(int value) {
    (void)value;
    return 0;
}

void *_no_handler(void *handler) {
    (void)handler;
    return NULL;
}

int _controlfp_s(unsigned *current, unsigned value, unsigned mask) {
    (void)value, (void)mask;
    if (current != NULL) {
        *current = 0x9001F;
    }
    return 0;
}

unsigned _controlfp(unsigned value, unsigned mask) {
    (void)value, (void)mask;
    return 0x9001F;
}

void _fpreset(void) {
    __asm__ volatile("fninit");
}

void *signal(int number, void *handler) {
    (void)number, (void)handler;
    return NULL;
}

int raise(int number) {
    (void)number;
    HostProgramFails("it has raised a signal");
}

char *getenv(const char *name) {
    (void)name;
    return NULL;
}

int system(const char *command) {
    (void)command;
    return -1;
}

int _getpid(void) {
    unsigned GetCurrentProcessId(void);
    return (int)GetCurrentProcessId();
}

int DllMain(void *module, unsigned reason, void *reserved) {
    (void)module, (void)reserved;
    if (reason == DLL_PROCESS_ATTACH) {
        read_command_line();
    }
    return 1;
}
