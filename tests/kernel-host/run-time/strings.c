/* Text and blocks of memory. */
#include "run_time.h"

void *memcpy(void *to, const void *from, size_t bytes) {
    void *result = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return result;
}

void *memmove(void *to, const void *from, size_t bytes) {
    char *target = to;
    const char *source = from;
    if (target <= source || target >= source + bytes) {
        return memcpy(to, from, bytes);
    }
    while (bytes-- > 0) {
        target[bytes] = source[bytes];
    }
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    void *result = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return result;
}

int memcmp(const void *first, const void *second, size_t bytes) {
    const unsigned char *one = first, *other = second;
    for (size_t index = 0; index < bytes; index++) {
        if (one[index] != other[index]) {
            return one[index] < other[index] ? -1 : 1;
        }
    }
    return 0;
}

void *memchr(const void *in, int wanted, size_t bytes) {
    const unsigned char *place = in;
    for (; bytes > 0; bytes--, place++) {
        if (*place == (unsigned char)wanted) {
            return (void *)place;
        }
    }
    return NULL;
}

int memcpy_s(void *to, size_t room, const void *from, size_t bytes) {
    if (bytes > room) {
        return ERANGE;
    }
    memmove(to, from, bytes);
    return 0;
}

static int lower(int character) {
    return character >= 'A' && character <= 'Z' ? character + 32 : character;
}

/* Each function for bytes and for units of UTF-16. */
#define TEXT_FUNCTIONS(unit, plain, length_of, most_of, copy, copy_most, append, append_most, compare, compare_most, compare_any_case, \
                       compare_most_any_case, find, find_last, find_text, span, other_span, find_any, duplicate, copy_checked,         \
                       append_checked)                                                                                                   \
    size_t length_of(const unit *text) {                                                                                                 \
        size_t length = 0;                                                                                                               \
        while (text[length] != 0) {                                                                                                      \
            length++;                                                                                                                    \
        }                                                                                                                                \
        return length;                                                                                                                   \
    }                                                                                                                                    \
    size_t most_of(const unit *text, size_t most) {                                                                                      \
        size_t length = 0;                                                                                                               \
        while (length < most && text[length] != 0) {                                                                                     \
            length++;                                                                                                                    \
        }                                                                                                                                \
        return length;                                                                                                                   \
    }                                                                                                                                    \
    unit *copy(unit *to, const unit *from) {                                                                                             \
        memmove(to, from, (length_of(from) + 1) * sizeof *from);                                                                         \
        return to;                                                                                                                       \
    }                                                                                                                                    \
    unit *copy_most(unit *to, const unit *from, size_t most) {                                                                           \
        size_t length = most_of(from, most);                                                                                             \
        memmove(to, from, length * sizeof *from);                                                                                        \
        memset(to + length, 0, (most - length) * sizeof *from);                                                                          \
        return to;                                                                                                                       \
    }                                                                                                                                    \
    unit *append(unit *to, const unit *from) {                                                                                           \
        copy(to + length_of(to), from);                                                                                                  \
        return to;                                                                                                                       \
    }                                                                                                                                    \
    unit *append_most(unit *to, const unit *from, size_t most) {                                                                         \
        size_t before = length_of(to), length = most_of(from, most);                                                                     \
        memmove(to + before, from, length * sizeof *from);                                                                               \
        to[before + length] = 0;                                                                                                         \
        return to;                                                                                                                       \
    }                                                                                                                                    \
    int compare_most(const unit *first, const unit *second, size_t most) {                                                               \
        for (; most > 0; most--, first++, second++) {                                                                                    \
            if ((plain)*first != (plain)*second || *first == 0) {                                                                        \
                return ((plain)*first > (plain)*second) - ((plain)*first < (plain)*second);                                              \
            }                                                                                                                            \
        }                                                                                                                                \
        return 0;                                                                                                                        \
    }                                                                                                                                    \
    int compare(const unit *first, const unit *second) {                                                                                 \
        return compare_most(first, second, SIZE_MAX);                                                                                    \
    }                                                                                                                                    \
    int compare_most_any_case(const unit *first, const unit *second, size_t most) {                                                      \
        for (; most > 0; most--, first++, second++) {                                                                                    \
            int one = lower((plain)*first), other = lower((plain)*second);                                                               \
            if (one != other || one == 0) {                                                                                              \
                return one - other;                                                                                                      \
            }                                                                                                                            \
        }                                                                                                                                \
        return 0;                                                                                                                        \
    }                                                                                                                                    \
    int compare_any_case(const unit *first, const unit *second) {                                                                        \
        return compare_most_any_case(first, second, SIZE_MAX);                                                                           \
    }                                                                                                                                    \
    unit *find(const unit *text, int wanted) {                                                                                           \
        for (; *text != (unit)wanted; text++) {                                                                                          \
            if (*text == 0) {                                                                                                            \
                return NULL;                                                                                                             \
            }                                                                                                                            \
        }                                                                                                                                \
        return (unit *)text;                                                                                                             \
    }                                                                                                                                    \
    unit *find_last(const unit *text, int wanted) {                                                                                      \
        const unit *found = NULL;                                                                                                        \
        do {                                                                                                                             \
            found = *text == (unit)wanted ? text : found;                                                                                \
        } while (*text++ != 0);                                                                                                          \
        return (unit *)found;                                                                                                            \
    }                                                                                                                                    \
    unit *find_text(const unit *text, const unit *wanted) {                                                                              \
        size_t length = length_of(wanted);                                                                                               \
        for (; compare_most(text, wanted, length) != 0; text++) {                                                                        \
            if (*text == 0) {                                                                                                            \
                return NULL;                                                                                                             \
            }                                                                                                                            \
        }                                                                                                                                \
        return (unit *)text;                                                                                                             \
    }                                                                                                                                    \
    size_t span(const unit *text, const unit *set) {                                                                                     \
        size_t length = 0;                                                                                                               \
        while (text[length] != 0 && find(set, text[length]) != NULL) {                                                                   \
            length++;                                                                                                                    \
        }                                                                                                                                \
        return length;                                                                                                                   \
    }                                                                                                                                    \
    size_t other_span(const unit *text, const unit *set) {                                                                               \
        size_t length = 0;                                                                                                               \
        while (text[length] != 0 && find(set, text[length]) == NULL) {                                                                   \
            length++;                                                                                                                    \
        }                                                                                                                                \
        return length;                                                                                                                   \
    }                                                                                                                                    \
    unit *find_any(const unit *text, const unit *set) {                                                                                  \
        text += other_span(text, set);                                                                                                   \
        return *text == 0 ? NULL : (unit *)text;                                                                                         \
    }                                                                                                                                    \
    unit *duplicate(const unit *text) {                                                                                                  \
        unit *twin = malloc((length_of(text) + 1) * sizeof *text);                                                                       \
        return twin == NULL ? NULL : copy(twin, text);                                                                                   \
    }                                                                                                                                    \
    int copy_checked(unit *to, size_t room, const unit *from) {                                                                          \
        if (to == NULL || from == NULL || length_of(from) >= room) {                                                                     \
            HostProgramFails(#copy_checked " is given a text that does not fit");                                                        \
        }                                                                                                                                \
        copy(to, from);                                                                                                                  \
        return 0;                                                                                                                        \
    }                                                                                                                                    \
    int append_checked(unit *to, size_t room, const unit *from) {                                                                        \
        if (to == NULL || from == NULL || length_of(to) + length_of(from) >= room) {                                                     \
            HostProgramFails(#append_checked " is given a text that does not fit");                                                      \
        }                                                                                                                                \
        append(to, from);                                                                                                                \
        return 0;                                                                                                                        \
    }

TEXT_FUNCTIONS(char, unsigned char, strlen, strnlen, strcpy, strncpy, strcat, strncat, strcmp, strncmp, _stricmp, _strnicmp, strchr, strrchr,
               strstr, strspn, strcspn, strpbrk, _strdup, strcpy_s, strcat_s)
TEXT_FUNCTIONS(uint16_t, uint16_t, wcslen, wcsnlen, wcscpy, wcsncpy, wcscat, wcsncat, wcscmp, wcsncmp, _wcsicmp, _wcsnicmp, wcschr, wcsrchr,
               wcsstr, wcsspn, wcscspn, wcspbrk, _wcsdup, wcscpy_s, wcscat_s)

#define TRUNCATE SIZE_MAX
#define STRUNCATE 80

int strncpy_s(char *to, size_t room, const char *from, size_t most) {
    size_t length = strnlen(from, most == TRUNCATE ? SIZE_MAX : most);
    int cut = length >= room;
    if (cut && most != TRUNCATE) {
        HostProgramFails("strncpy_s is given a text that does not fit");
    }
    length = cut ? room - 1 : length;
    memmove(to, from, length);
    to[length] = 0;
    return cut ? STRUNCATE : 0;
}

char *strtok_s(char *text, const char *set, char **rest) {
    text = text == NULL ? *rest : text;
    text += strspn(text, set);
    char *end = text + strcspn(text, set);
    *rest = *end == 0 ? end : end + 1;
    *end = 0;
    return text == end ? NULL : text;
}

char *strtok(char *text, const char *set) {
    static char *rest;
    return strtok_s(text, set, &rest);
}

int tolower(int character) {
    return lower(character);
}

int toupper(int character) {
    return character >= 'a' && character <= 'z' ? character - 32 : character;
}

int isdigit(int character) {
    return character >= '0' && character <= '9';
}

int isupper(int character) {
    return character >= 'A' && character <= 'Z';
}

int islower(int character) {
    return character >= 'a' && character <= 'z';
}

int isalpha(int character) {
    return isupper(character) || islower(character);
}

int isalnum(int character) {
    return isalpha(character) || isdigit(character);
}

int isspace(int character) {
    return character == ' ' || (character >= '\t' && character <= '\r');
}

int isxdigit(int character) {
    return isdigit(character) || (lower(character) >= 'a' && lower(character) <= 'f');
}

int isprint(int character) {
    return character >= ' ' && character <= '~';
}

int ispunct(int character) {
    return isprint(character) && character != ' ' && !isalnum(character);
}

int iscntrl(int character) {
    return (character >= 0 && character < ' ') || character == 0x7F;
}

char *strerror(int number) {
    static char text[32];
    int snprintf(char *, size_t, const char *, ...);
    snprintf(text, sizeof text, "error %d", number);
    return text;
}

int strerror_s(char *text, size_t size, int number) {
    int snprintf(char *, size_t, const char *, ...);
    return snprintf(text, size, "error %d", number) < 0;
}

/* The C locale, in which a byte is a character. */
struct locale_conventions {
    char *decimal_point, *thousands_separator, *grouping, *others[7];
    char numbers[8];
    void *wide[8];
};

void *localeconv(void) {
    static struct locale_conventions c = {".", "", "", {"", "", "", "", "", "", ""}, {127, 127, 127, 127, 127, 127, 127, 127}, {0}};
    return &c;
}

char *setlocale(int category, const char *name) {
    (void)category;
    return name == NULL || *name == 0 || strcmp(name, "C") == 0 ? "C" : NULL;
}

unsigned ___lc_codepage_func(void) {
    return 0;
}

int ___mb_cur_max_func(void) {
    return 1;
}

size_t mbrtowc(uint16_t *to, const char *from, size_t most, int *state) {
    (void)state;
    if (from == NULL || most == 0) {
        return 0;
    }
    if (to != NULL) {
        *to = (unsigned char)*from;
    }
    return *from != 0;
}

size_t mbrlen(const char *from, size_t most, int *state) {
    return mbrtowc(NULL, from, most, state);
}

size_t wcrtomb(char *to, uint16_t from, int *state) {
    (void)state;
    if (to != NULL) {
        *to = from < 0x100 ? (char)from : '?';
    }
    return 1;
}

size_t mbstowcs(uint16_t *to, const char *from, size_t most) {
    size_t length = strlen(from);
    for (size_t index = 0; to != NULL && index < most && index <= length; index++) {
        to[index] = (unsigned char)from[index];
    }
    return to == NULL || length < most ? length : most;
}

size_t wcstombs(char *to, const uint16_t *from, size_t most) {
    size_t length = wcslen(from);
    for (size_t index = 0; to != NULL && index < most && index <= length; index++) {
        to[index] = from[index] < 0x100 ? (char)from[index] : '?';
    }
    return to == NULL || length < most ? length : most;
}
