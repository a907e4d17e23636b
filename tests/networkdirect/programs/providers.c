/* nd-providers: lists the providers of the catalogue and the addresses of the one of version 2, and asks Winsock for local addresses. */
#include "client.h"

static void print_address(const char *what, struct sockaddr *address, int length) {
    char text[80];
    DWORD size = sizeof text;
    CHECK(WSAAddressToStringA(address, (DWORD)length, NULL, text, &size) == 0, "WSAAddressToString", WSAGetLastError());
    printf("%s %s\n", what, text);
}

static void list_catalog(void) {
    int count, found = 0;
    WSAPROTOCOL_INFOW *entries = catalog(&count);
    for (int index = 0; index < count; index++) {
        WSAPROTOCOL_INFOW *entry = &entries[index];
        if (is_provider(entry, VERSION_2) || is_provider(entry, 1)) {
            printf("provider \"%ls\", version %d.%d, entry %lu\n", entry->szProtocol, entry->iVersion >> 16, entry->iVersion & 0xFFFF,
                   (unsigned long)entry->dwCatalogEntryId);
            found++;
        }
    }
    printf("%d of %d entries are NetworkDirect\n", found, count);
    free(entries);
}

static void list_addresses(IND2Provider *provider) {
    ULONG length = 0;
    HRESULT status = provider->lpVtbl->QueryAddressList(provider, NULL, &length);
    CHECK(status == ND_BUFFER_OVERFLOW, "QueryAddressList without a buffer", status);
    SOCKET_ADDRESS_LIST *list = malloc(length);
    SUCCEEDS(provider->lpVtbl->QueryAddressList(provider, list, &length), "QueryAddressList");
    for (int index = 0; index < list->iAddressCount; index++) {
        print_address("adapter", list->Address[index].lpSockaddr, list->Address[index].iSockaddrLength);
    }
    free(list);
}

/* What a client does to find the local address for a peer. */
static void find_route(const char *peer) {
    struct addrinfo hints = {.ai_family = AF_INET}, *to;
    struct sockaddr_in local;
    DWORD returned = 0;
    CHECK(getaddrinfo(peer, "5000", &hints, &to) == 0, "getaddrinfo", WSAGetLastError());
    SOCKET socket = WSASocketW(AF_INET, SOCK_STREAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED);
    CHECK(socket != INVALID_SOCKET, "WSASocket", WSAGetLastError());
    int result = WSAIoctl(socket, SIO_ROUTING_INTERFACE_QUERY, to->ai_addr, (DWORD)to->ai_addrlen, &local, sizeof local, &returned, NULL, NULL);
    CHECK(result == 0 && returned == sizeof local, "SIO_ROUTING_INTERFACE_QUERY", WSAGetLastError());
    print_address("the way to the peer begins at", (struct sockaddr *)&local, sizeof local);
    char buffer[512];
    SOCKET_ADDRESS_LIST *list = (SOCKET_ADDRESS_LIST *)buffer;
    result = WSAIoctl(socket, SIO_ADDRESS_LIST_QUERY, NULL, 0, buffer, sizeof buffer, &returned, NULL, NULL);
    CHECK(result == 0, "SIO_ADDRESS_LIST_QUERY", WSAGetLastError());
    for (int index = 0; index < list->iAddressCount; index++) {
        print_address("local", list->Address[index].lpSockaddr, list->Address[index].iSockaddrLength);
    }
    closesocket(socket);
    freeaddrinfo(to);
}

int main(int count, char **words) {
    WSADATA data;
    LARGE_INTEGER frequency;
    CHECK(WSAStartup(MAKEWORD(2, 2), &data) == 0, "WSAStartup", 0);
    QueryPerformanceFrequency(&frequency);
    printf("%s: %d argument%s, %.1f MHz, %-5s|%+05d|%#x\n", words[0], count - 1, count == 2 ? "" : "s", (double)frequency.QuadPart / 1e6, "ab", 42, 255);
    list_catalog();
    IND2Provider *provider = load_provider();
    list_addresses(provider);
    provider->lpVtbl->Release(provider);
    find_route(count > 1 ? words[1] : "10.0.0.2");
    WSACleanup();
    return 0;
}
