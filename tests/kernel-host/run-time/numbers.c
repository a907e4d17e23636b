/* Numbers in text, sorting, chance, and the clock. */
#include "run_time.h"

int isspace(int character);

static int digit(int character) {
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    int letter = character | 0x20;
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : 99;
}

/* The magnitude, with whether it fits. */
static uint64_t magnitude(const char *text, char **end, int base, int *negative, int *overflows) {
    const char *place = text;
    while (isspace((unsigned char)*place)) {
        place++;
    }
    *negative = *place == '-';
    place += *place == '-' || *place == '+';
    if ((base == 0 || base == 16) && place[0] == '0' && (place[1] | 0x20) == 'x' && digit(place[2]) < 16) {
        place += 2;
        base = 16;
    }
    base = base != 0 ? base : *place == '0' ? 8 : 10;
    const char *first = place;
    uint64_t value = 0;
    *overflows = 0;
    for (; digit(*place) < base; place++) {
        *overflows |= __builtin_mul_overflow(value, (uint64_t)base, &value) || __builtin_add_overflow(value, (uint64_t)digit(*place), &value);
    }
    if (end != NULL) {
        *end = (char *)(place == first ? text : place);
    }
    return value;
}

int64_t strtoll(const char *text, char **end, int base) {
    int negative, overflows;
    uint64_t value = magnitude(text, end, base, &negative, &overflows);
    if (overflows || value > (uint64_t)INT64_MAX + (uint64_t)negative) {
        *_errno() = ERANGE;
        return negative ? INT64_MIN : INT64_MAX;
    }
    return negative ? (int64_t)(0 - value) : (int64_t)value;
}

uint64_t strtoull(const char *text, char **end, int base) {
    int negative, overflows;
    uint64_t value = magnitude(text, end, base, &negative, &overflows);
    if (overflows) {
        *_errno() = ERANGE;
        return UINT64_MAX;
    }
    return negative ? 0 - value : value;
}

/* long has 32 bits. */
int strtol(const char *text, char **end, int base) {
    int64_t value = strtoll(text, end, base);
    if (value < INT32_MIN || value > INT32_MAX) {
        *_errno() = ERANGE;
        return value < 0 ? INT32_MIN : INT32_MAX;
    }
    return (int)value;
}

unsigned strtoul(const char *text, char **end, int base) {
    int negative, overflows;
    uint64_t value = magnitude(text, end, base, &negative, &overflows);
    if (overflows || value > UINT32_MAX) {
        *_errno() = ERANGE;
        return UINT32_MAX;
    }
    return (unsigned)(negative ? 0 - value : value);
}

int atoi(const char *text) {
    return strtol(text, NULL, 10);
}

int64_t _atoi64(const char *text) {
    return strtoll(text, NULL, 10);
}

double __strtod(const char *text, char **end);

double strtod(const char *text, char **end) {
    return __strtod(text, end);
}

double atof(const char *text) {
    return __strtod(text, NULL);
}

/* Wide digits are those of ASCII. */
static void narrowed(const uint16_t *text, char *narrow, size_t size) {
    size_t index = 0;
    for (; index + 1 < size && text[index] != 0; index++) {
        narrow[index] = text[index] < 0x80 ? (char)text[index] : '?';
    }
    narrow[index] = 0;
}

int wcstol(const uint16_t *text, uint16_t **end, int base) {
    char narrow[80], *stop;
    narrowed(text, narrow, sizeof narrow);
    int value = strtol(narrow, &stop, base);
    if (end != NULL) {
        *end = (uint16_t *)text + (stop - narrow);
    }
    return value;
}

unsigned wcstoul(const uint16_t *text, uint16_t **end, int base) {
    char narrow[80], *stop;
    narrowed(text, narrow, sizeof narrow);
    unsigned value = strtoul(narrow, &stop, base);
    if (end != NULL) {
        *end = (uint16_t *)text + (stop - narrow);
    }
    return value;
}

int _wtoi(const uint16_t *text) {
    return wcstol(text, NULL, 10);
}

int abs(int value) {
    return value < 0 ? -value : value;
}

int64_t _abs64(int64_t value) {
    return value < 0 ? -value : value;
}

double tan(double angle) {
    double sin(double), cos(double);
    return sin(angle) / cos(angle);
}

double atan(double value) {
    double atan2(double, double);
    return atan2(value, 1);
}

double log10(double value) {
    double log(double);
    return log(value) / 2.302585092994045684;
}

void __mingw_raise_matherr(int kind, const char *name, double first, double second, double result) {
    (void)kind, (void)name, (void)first, (void)second, (void)result;
}

static void swap(char *first, char *second, size_t size) {
    for (; size > 0; size--, first++, second++) {
        char byte = *first;
        *first = *second;
        *second = byte;
    }
}

/* Heap sort: no recursion, no worst case. */
void qsort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *)) {
    char *items = base;
    for (size_t start = count / 2, end = count; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            end--;
            swap(items, items + end * size, size);
        }
        for (size_t root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && compare(items + child * size, items + (child + 1) * size) < 0) {
                child++;
            }
            if (compare(items + root * size, items + child * size) >= 0) {
                break;
            }
            swap(items + root * size, items + child * size, size);
        }
    }
}

void *bsearch(const void *key, const void *base, size_t count, size_t size, int (*compare)(const void *, const void *)) {
    const char *items = base;
    while (count > 0) {
        const char *middle = items + count / 2 * size;
        int order = compare(key, middle);
        if (order == 0) {
            return (void *)middle;
        }
        if (order > 0) {
            items = middle + size;
            count--;
        }
        count /= 2;
    }
    return NULL;
}

static unsigned seed = 1;

void srand(unsigned value) {
    seed = value;
}

int rand(void) {
    seed = seed * 214013 + 2531011;
    return (int)(seed >> 16 & 0x7FFF);
}

int rand_s(unsigned *value) {
    *value = (unsigned)rand() << 17 ^ (unsigned)rand() << 8 ^ (unsigned)rand();
    return 0;
}

#define UNITS_IN_A_SECOND 10000000
#define SECONDS_TO_1970 11644473600

int64_t _time64(int64_t *to) {
    uint64_t units;
    GetSystemTimeAsFileTime(&units);
    int64_t seconds = (int64_t)(units / UNITS_IN_A_SECOND) - SECONDS_TO_1970;
    if (to != NULL) {
        *to = seconds;
    }
    return seconds;
}

int _time32(int *to) {
    int seconds = (int)_time64(NULL);
    if (to != NULL) {
        *to = seconds;
    }
    return seconds;
}

/* The machine's clock is in UTC. */
void _tzset(void) {}

int *__daylight(void) {
    static int none;
    return &none;
}

int *__timezone(void) {
    static int none;
    return &none;
}

char **__tzname(void) {
    static char *names[2] = {"UTC", "UTC"};
    return names;
}

int clock(void) {
    return (int)GetTickCount64();
}

/* A fraction from 1/2 to 1, and the exponent of two. */
double frexp(double value, int *exponent) {
    union {
        double value;
        uint64_t bits;
    } parts = {value};
    int stored = (int)(parts.bits >> 52 & 0x7FF);
    *exponent = 0;
    if (stored == 0x7FF || value == 0) {
        return value;
    }
    if (stored == 0) {
        value = frexp(value * 0x1p64, exponent);
        *exponent -= 64;
        return value;
    }
    *exponent = stored - 1022;
    parts.bits = (parts.bits & ~(0x7FFull << 52)) | 1022ull << 52;
    return parts.value;
}
