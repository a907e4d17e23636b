/*
 * ws2_32 as clients of NetworkDirect use it: addresses, the catalogue of providers, and the two queries by which a client finds its local
 * address. Sockets can be made and closed; nothing is sent over them.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <ws2spi.h>

#include "run_time.h"

#define MOST_SOCKETS 64
#define FIRST_SOCKET 0x5000
#define MOST_ADDRESSES 64

/* Of the host: the entries of the catalogue, the DLL's path of one, and the addresses of the adapters with the lengths of their prefixes. */
unsigned HostCatalogEntries(WSAPROTOCOL_INFOW *to, unsigned most);
unsigned HostCatalogPath(const GUID *provider, uint16_t *to, unsigned size);
struct local_address {
    SOCKADDR_STORAGE address;
    unsigned prefix;
};
unsigned HostLocalAddresses(struct local_address *to, unsigned most);
int snprintf(char *text, size_t size, const char *format, ...);

static unsigned started;
static volatile int open_sockets[MOST_SOCKETS];

static int fails(int error) {
    SetLastError((DWORD)error);
    return SOCKET_ERROR;
}

int WSAAPI WSAStartup(WORD version, WSADATA *data) {
    if ((version & 0xFF) < 1) {
        return WSAVERNOTSUPPORTED;
    }
    memset(data, 0, sizeof *data);
    data->wVersion = (version & 0xFF) > 2 ? 0x0202 : version;
    data->wHighVersion = 0x0202;
    __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
    return 0;
}

int WSAAPI WSACleanup(void) {
    if (started == 0) {
        return fails(WSANOTINITIALISED);
    }
    __atomic_sub_fetch(&started, 1, __ATOMIC_RELAXED);
    return 0;
}

int WSAAPI WSAGetLastError(void) {
    return (int)GetLastError();
}

void WSAAPI WSASetLastError(int error) {
    SetLastError((DWORD)error);
}

u_short WSAAPI htons(u_short value) {
    return __builtin_bswap16(value);
}

u_short WSAAPI ntohs(u_short value) {
    return __builtin_bswap16(value);
}

u_long WSAAPI htonl(u_long value) {
    return __builtin_bswap32(value);
}

u_long WSAAPI ntohl(u_long value) {
    return __builtin_bswap32(value);
}

/* Addresses in text. */
static const char *decimal(const char *text, unsigned most, unsigned *value) {
    const char *first = text;
    *value = 0;
    while (*text >= '0' && *text <= '9' && text - first < 6) {
        *value = *value * 10 + (unsigned)(*text++ - '0');
    }
    return text == first || *value > most ? NULL : text;
}

static const char *read_ipv4(const char *text, unsigned char *to) {
    for (int index = 0; index < 4; index++) {
        unsigned value;
        if (index > 0 && *text++ != '.') {
            return NULL;
        }
        text = decimal(text, 255, &value);
        if (text == NULL) {
            return NULL;
        }
        to[index] = (unsigned char)value;
    }
    return text;
}

static int hexadecimal(int character) {
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    int letter = character | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static const char *read_ipv6(const char *text, unsigned char *to) {
    unsigned char bytes[16] = {0};
    int filled = 0, gap = -1;
    if (text[0] == ':' && text[1] == ':') {
        gap = 0;
        text += 2;
    }
    while (filled < 16 && hexadecimal(*text) >= 0) {
        const char *group = text;
        unsigned value = 0;
        for (; hexadecimal(*text) >= 0 && text - group < 4; text++) {
            value = value << 4 | (unsigned)hexadecimal(*text);
        }
        if (*text == '.' && filled <= 12 && (text = read_ipv4(group, bytes + filled)) != NULL) {
            filled += 4;
            break;
        }
        if (text == NULL) {
            return NULL;
        }
        bytes[filled++] = (unsigned char)(value >> 8);
        bytes[filled++] = (unsigned char)value;
        if (text[0] == ':' && text[1] == ':' && gap < 0) {
            gap = filled;
            text += 2;
        } else if (text[0] == ':' && hexadecimal(text[1]) >= 0 && filled < 16) {
            text++;
        } else {
            break;
        }
    }
    if (filled < 16 && gap < 0) {
        return NULL;
    }
    gap = gap < 0 ? filled : gap;
    memset(to, 0, 16);
    memcpy(to, bytes, (size_t)gap);
    memcpy(to + 16 - (filled - gap), bytes + gap, (size_t)(filled - gap));
    return text;
}

INT WSAAPI inet_pton(INT family, LPCSTR text, PVOID to) {
    if (family != AF_INET && family != AF_INET6) {
        return fails(WSAEAFNOSUPPORT);
    }
    const char *end = family == AF_INET ? read_ipv4(text, to) : read_ipv6(text, to);
    return end != NULL && *end == 0;
}

unsigned long WSAAPI inet_addr(const char *text) {
    unsigned value;
    return inet_pton(AF_INET, text, &value) == 1 ? value : INADDR_NONE;
}

static void write_ipv6(const unsigned char *bytes, char *text, size_t size) {
    unsigned groups[8];
    int gap = -1, longest = 1;
    for (int index = 0; index < 8; index++) {
        groups[index] = (unsigned)bytes[2 * index] << 8 | bytes[2 * index + 1];
    }
    for (int start = 0; start < 8; start++) {
        int length = 0;
        while (start + length < 8 && groups[start + length] == 0) {
            length++;
        }
        if (length > longest) {
            gap = start;
            longest = length;
        }
    }
    size_t used = 0;
    text[0] = 0;
    for (int index = 0; index < 8 && used < size; index++) {
        if (index == gap) {
            used += (size_t)snprintf(text + used, size - used, "::");
            index += longest - 1;
        } else {
            used += (size_t)snprintf(text + used, size - used, "%s%x", index == 0 || index == gap + longest ? "" : ":", groups[index]);
        }
    }
}

PCSTR WSAAPI inet_ntop(INT family, const VOID *from, PSTR to, size_t size) {
    char text[INET6_ADDRSTRLEN];
    const unsigned char *bytes = from;
    if (family == AF_INET) {
        snprintf(text, sizeof text, "%u.%u.%u.%u", bytes[0], bytes[1], bytes[2], bytes[3]);
    } else if (family == AF_INET6) {
        write_ipv6(bytes, text, sizeof text);
    } else {
        fails(WSAEAFNOSUPPORT);
        return NULL;
    }
    if (strlen(text) >= size) {
        fails(WSAEINVAL);
        return NULL;
    }
    memcpy(to, text, strlen(text) + 1);
    return to;
}

char *WSAAPI inet_ntoa(struct in_addr address) {
    static char text[16];
    inet_ntop(AF_INET, &address, text, sizeof text);
    return text;
}

static void narrow(const uint16_t *from, char *to, size_t size) {
    size_t index = 0;
    for (; index + 1 < size && from[index] != 0; index++) {
        to[index] = from[index] < 0x80 ? (char)from[index] : '?';
    }
    to[index] = 0;
}

static void widen(const char *from, uint16_t *to) {
    do {
        *to++ = (unsigned char)*from;
    } while (*from++ != 0);
}

INT WSAAPI InetPtonW(INT family, LPCWSTR text, PVOID to) {
    char bytes[INET6_ADDRSTRLEN];
    narrow(text, bytes, sizeof bytes);
    return inet_pton(family, bytes, to);
}

LPCWSTR WSAAPI InetNtopW(INT family, const VOID *from, LPWSTR to, size_t size) {
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, from, text, size < sizeof text ? size : sizeof text) == NULL) {
        return NULL;
    }
    widen(text, to);
    return to;
}

/* A socket address, with a port behind a colon; one of IPv6 with a port stands in brackets. */
static int read_address(const char *text, int family, SOCKADDR_STORAGE *to, int *length) {
    unsigned port = 0;
    memset(to, 0, sizeof *to);
    if (family == AF_INET) {
        struct sockaddr_in *address = (struct sockaddr_in *)to;
        text = read_ipv4(text, (unsigned char *)&address->sin_addr);
        *length = sizeof *address;
    } else {
        struct sockaddr_in6 *address = (struct sockaddr_in6 *)to;
        int bracket = *text == '[';
        text = read_ipv6(text + bracket, (unsigned char *)&address->sin6_addr);
        unsigned scope = 0;
        if (text != NULL && *text == '%') {
            text = decimal(text + 1, 0xFFFFFFFF, &scope);
        }
        text = text == NULL || (bracket && *text != ']') ? NULL : text + bracket;
        address->sin6_scope_id = scope;
        *length = sizeof *address;
    }
    if (text != NULL && *text == ':') {
        text = decimal(text + 1, 65535, &port);
    }
    to->ss_family = (short)family;
    ((struct sockaddr_in *)to)->sin_port = htons((u_short)port);
    return text != NULL && *text == 0;
}

INT WSAAPI WSAStringToAddressA(LPSTR text, INT family, LPWSAPROTOCOL_INFOA provider, LPSOCKADDR to, LPINT length) {
    (void)provider;
    SOCKADDR_STORAGE address;
    int own;
    if ((family != AF_INET && family != AF_INET6) || !read_address(text, family, &address, &own)) {
        return fails(WSAEINVAL);
    }
    if (*length < own) {
        *length = own;
        return fails(WSAEFAULT);
    }
    memcpy(to, &address, (size_t)own);
    *length = own;
    return 0;
}

INT WSAAPI WSAStringToAddressW(LPWSTR text, INT family, LPWSAPROTOCOL_INFOW provider, LPSOCKADDR to, LPINT length) {
    (void)provider;
    char bytes[80];
    narrow(text, bytes, sizeof bytes);
    return WSAStringToAddressA(bytes, family, NULL, to, length);
}

INT WSAAPI WSAAddressToStringA(LPSOCKADDR from, DWORD length, LPWSAPROTOCOL_INFOA provider, LPSTR to, LPDWORD size) {
    (void)provider, (void)length;
    char host[INET6_ADDRSTRLEN], text[80];
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    unsigned port = ntohs(four->sin_port);
    int is_six = from->sa_family == AF_INET6;
    if (inet_ntop(from->sa_family, is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr, host, sizeof host) == NULL) {
        return SOCKET_ERROR;
    }
    char scope[16] = "";
    if (is_six && six->sin6_scope_id != 0) {
        snprintf(scope, sizeof scope, "%%%lu", (unsigned long)six->sin6_scope_id);
    }
    if (port == 0) {
        snprintf(text, sizeof text, "%s%s", host, scope);
    } else {
        snprintf(text, sizeof text, is_six ? "[%s%s]:%u" : "%s%s:%u", host, scope, port);
    }
    DWORD needed = (DWORD)strlen(text) + 1;
    int fits = *size >= needed;
    *size = needed;
    if (!fits) {
        return fails(WSAEFAULT);
    }
    memcpy(to, text, needed);
    return 0;
}

INT WSAAPI WSAAddressToStringW(LPSOCKADDR from, DWORD length, LPWSAPROTOCOL_INFOW provider, LPWSTR to, LPDWORD size) {
    (void)provider;
    char text[80];
    DWORD room = *size < sizeof text ? *size : sizeof text;
    int result = WSAAddressToStringA(from, length, NULL, text, &room);
    *size = room;
    if (result == 0) {
        widen(text, to);
    }
    return result;
}

/* Names: addresses in numbers, and "localhost". No name is looked up. */
static int resolve(const char *name, int family, unsigned port, SOCKADDR_STORAGE *to, int *length) {
    int _stricmp(const char *, const char *);
    const char *text = name == NULL ? (family == AF_INET6 ? "::" : "0.0.0.0") : name;
    text = _stricmp(text, "localhost") == 0 ? (family == AF_INET6 ? "::1" : "127.0.0.1") : text;
    int found = family != AF_INET6 && read_address(text, AF_INET, to, length);
    found = found || (family != AF_INET && read_address(text, AF_INET6, to, length));
    ((struct sockaddr_in *)to)->sin_port = htons((u_short)port);
    return found;
}

INT WSAAPI getaddrinfo(PCSTR name, PCSTR service, const ADDRINFOA *hints, PADDRINFOA *to) {
    unsigned port = 0;
    SOCKADDR_STORAGE address;
    int length;
    if (service != NULL && decimal(service, 65535, &port) == NULL) {
        return WSATYPE_NOT_FOUND;
    }
    if (!resolve(name, hints == NULL ? AF_UNSPEC : hints->ai_family, port, &address, &length)) {
        return WSAHOST_NOT_FOUND;
    }
    ADDRINFOA *made = calloc(1, sizeof *made + sizeof address);
    if (made == NULL) {
        return WSA_NOT_ENOUGH_MEMORY;
    }
    made->ai_family = address.ss_family;
    made->ai_socktype = hints == NULL ? 0 : hints->ai_socktype;
    made->ai_protocol = hints == NULL ? 0 : hints->ai_protocol;
    made->ai_addrlen = (size_t)length;
    made->ai_addr = (struct sockaddr *)(made + 1);
    memcpy(made + 1, &address, sizeof address);
    *to = made;
    return 0;
}

VOID WSAAPI freeaddrinfo(PADDRINFOA list) {
    free(list);
}

INT WSAAPI GetAddrInfoW(PCWSTR name, PCWSTR service, const ADDRINFOW *hints, PADDRINFOW *to) {
    char host[80], port[16];
    if (name != NULL) {
        narrow(name, host, sizeof host);
    }
    if (service != NULL) {
        narrow(service, port, sizeof port);
    }
    /* Both structures have their fields at the same places, and the name stays NULL. */
    return getaddrinfo(
        name == NULL ? NULL : host, service == NULL ? NULL : port, (const ADDRINFOA *)(const void *)hints, (PADDRINFOA *)(void *)to);
}

VOID WSAAPI FreeAddrInfoW(PADDRINFOW list) {
    free(list);
}

INT WSAAPI getnameinfo(const SOCKADDR *from, socklen_t length, PCHAR host, DWORD host_size, PCHAR service, DWORD service_size, INT flags) {
    (void)length, (void)flags;
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    const void *address = from->sa_family == AF_INET6 ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr;
    if (host != NULL && inet_ntop(from->sa_family, address, host, host_size) == NULL) {
        return WSAEFAULT;
    }
    if (service != NULL) {
        snprintf(service, service_size, "%u", ntohs(four->sin_port));
    }
    return 0;
}

int WSAAPI gethostname(char *name, int size) {
    return snprintf(name, (size_t)size, "kernel-host") < size ? 0 : fails(WSAEFAULT);
}

/* The catalogue. Hidden entries are those of WSCEnumProtocols alone. */
int WSPAPI WSCEnumProtocols(LPINT protocols, LPWSAPROTOCOL_INFOW to, LPDWORD length, LPINT error) {
    (void)protocols;
    unsigned count = HostCatalogEntries(NULL, 0), needed = count * (unsigned)sizeof *to;
    if (to == NULL || *length < needed) {
        *length = needed;
        *error = WSAENOBUFS;
        return SOCKET_ERROR;
    }
    return (int)HostCatalogEntries(to, count);
}

static int visible_entries(WSAPROTOCOL_INFOW **to) {
    unsigned count = HostCatalogEntries(NULL, 0);
    int visible = 0;
    *to = malloc((count + 1) * sizeof **to);
    HostCatalogEntries(*to, count);
    for (unsigned index = 0; index < count; index++) {
        if (!((*to)[index].dwProviderFlags & PFL_HIDDEN)) {
            (*to)[visible++] = (*to)[index];
        }
    }
    return visible;
}

int WSAAPI WSAEnumProtocolsW(LPINT protocols, LPWSAPROTOCOL_INFOW to, LPDWORD length) {
    (void)protocols;
    WSAPROTOCOL_INFOW *entries;
    int count = visible_entries(&entries);
    DWORD needed = (DWORD)count * sizeof *to;
    int fits = to != NULL && *length >= needed;
    if (fits) {
        memcpy(to, entries, needed);
    } else {
        *length = needed;
    }
    free(entries);
    return fits ? count : fails(WSAENOBUFS);
}

int WSPAPI WSCGetProviderPath(LPGUID provider, WCHAR *to, LPINT length, LPINT error) {
    uint16_t path[MAX_PATH];
    int needed = (int)HostCatalogPath(provider, path, MAX_PATH);
    if (needed == 0) {
        *error = WSAEINVAL;
        return SOCKET_ERROR;
    }
    if (*length < needed) {
        *length = needed;
        *error = WSAEFAULT;
        return SOCKET_ERROR;
    }
    memcpy(to, path, (size_t)needed * sizeof *path);
    *length = needed;
    return 0;
}

/* Sockets. */
SOCKET WSAAPI WSASocketW(int family, int type, int protocol, LPWSAPROTOCOL_INFOW provider, GROUP group, DWORD flags) {
    (void)type, (void)protocol, (void)provider, (void)group, (void)flags;
    if (started == 0) {
        return (SOCKET)fails(WSANOTINITIALISED);
    }
    if (family != AF_INET && family != AF_INET6) {
        return (SOCKET)fails(WSAEAFNOSUPPORT);
    }
    for (unsigned index = 0; index < MOST_SOCKETS; index++) {
        int none = 0;
        if (__atomic_compare_exchange_n(&open_sockets[index], &none, family, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return FIRST_SOCKET + 4 * index;
        }
    }
    return (SOCKET)fails(WSAEMFILE);
}

SOCKET WSAAPI WSASocketA(int family, int type, int protocol, LPWSAPROTOCOL_INFOA provider, GROUP group, DWORD flags) {
    (void)provider;
    return WSASocketW(family, type, protocol, NULL, group, flags);
}

SOCKET WSAAPI socket(int family, int type, int protocol) {
    return WSASocketW(family, type, protocol, NULL, 0, 0);
}

static volatile int *of_socket(SOCKET socket) {
    size_t index = (size_t)(socket - FIRST_SOCKET) / 4;
    return index < MOST_SOCKETS && open_sockets[index] != 0 ? &open_sockets[index] : NULL;
}

int WSAAPI closesocket(SOCKET socket) {
    volatile int *family = of_socket(socket);
    if (family == NULL) {
        return fails(WSAENOTSOCK);
    }
    *family = 0;
    return 0;
}

static int length_of(const SOCKADDR_STORAGE *address) {
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static const unsigned char *bytes_of(const SOCKADDR_STORAGE *address) {
    return address->ss_family == AF_INET6 ? (const unsigned char *)&((const struct sockaddr_in6 *)address)->sin6_addr
                                          : (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
}

/* The local address through which packets to another one go: itself, or the one with a prefix that both have. */
static int route(const SOCKADDR_STORAGE *to, void *out, DWORD size, DWORD *written) {
    struct local_address own[MOST_ADDRESSES];
    unsigned count = HostLocalAddresses(own, MOST_ADDRESSES);
    int best = -1, best_prefix = -1;
    for (unsigned index = 0; index < count; index++) {
        if (own[index].address.ss_family != to->ss_family) {
            continue;
        }
        unsigned bits = to->ss_family == AF_INET6 ? 128 : 32, common = 0;
        const unsigned char *one = bytes_of(&own[index].address), *other = bytes_of(to);
        while (common < bits && !((one[common / 8] ^ other[common / 8]) & (0x80 >> common % 8))) {
            common++;
        }
        int weight = common == bits ? (int)bits : common >= own[index].prefix ? (int)own[index].prefix : -1;
        if (weight > best_prefix) {
            best = (int)index;
            best_prefix = weight;
        }
    }
    if (best < 0) {
        return fails(WSAENETUNREACH);
    }
    int length = length_of(&own[best].address);
    *written = (DWORD)length;
    if ((int)size < length) {
        return fails(WSAEFAULT);
    }
    memcpy(out, &own[best].address, (size_t)length);
    return 0;
}

static int is_loopback(const SOCKADDR_STORAGE *address) {
    static const unsigned char loopback[16] = {[15] = 1};
    const unsigned char *bytes = bytes_of(address);
    return address->ss_family == AF_INET6 ? memcmp(bytes, loopback, sizeof loopback) == 0 : bytes[0] == 127;
}

/* SOCKET_ADDRESS_LIST of one family, with the addresses behind it; the loopback interface is not in it. */
static int list(int family, void *out, DWORD size, DWORD *written) {
    struct local_address own[MOST_ADDRESSES];
    unsigned count = HostLocalAddresses(own, MOST_ADDRESSES), wanted = 0;
    for (unsigned index = 0; index < count; index++) {
        if (own[index].address.ss_family == family && !is_loopback(&own[index].address)) {
            own[wanted++] = own[index];
        }
    }
    SOCKET_ADDRESS_LIST *list = out;
    size_t head = offsetof(SOCKET_ADDRESS_LIST, Address) + wanted * sizeof(SOCKET_ADDRESS);
    *written = (DWORD)(head + wanted * (size_t)length_of(&own[0].address));
    if (wanted == 0) {
        *written = sizeof *list;
    }
    if (size < *written) {
        return fails(WSAEFAULT);
    }
    list->iAddressCount = (int)wanted;
    char *place = (char *)out + head;
    for (unsigned index = 0; index < wanted; index++) {
        int length = length_of(&own[index].address);
        memcpy(place, &own[index].address, (size_t)length);
        list->Address[index].lpSockaddr = (struct sockaddr *)place;
        list->Address[index].iSockaddrLength = length;
        place += length;
    }
    return 0;
}

int WSAAPI WSAIoctl(
    SOCKET socket, DWORD code, LPVOID in, DWORD in_length, LPVOID out, DWORD out_length, LPDWORD returned, LPWSAOVERLAPPED overlapped,
    LPWSAOVERLAPPED_COMPLETION_ROUTINE routine) {
    (void)routine;
    volatile int *family = of_socket(socket);
    if (family == NULL) {
        return fails(WSAENOTSOCK);
    }
    if (overlapped != NULL) {
        return fails(WSAEOPNOTSUPP);
    }
    if (code == SIO_ROUTING_INTERFACE_QUERY && in_length >= sizeof(struct sockaddr_in)) {
        SOCKADDR_STORAGE to = {0};
        memcpy(&to, in, in_length < sizeof to ? in_length : sizeof to);
        return route(&to, out, out_length, returned);
    }
    if (code == SIO_ADDRESS_LIST_QUERY) {
        return list(*family, out, out_length, returned);
    }
    return fails(WSAEOPNOTSUPP);
}

/* What would move data. */
int WSAAPI NotASocket(void) {
    return fails(WSAEOPNOTSUPP);
}
