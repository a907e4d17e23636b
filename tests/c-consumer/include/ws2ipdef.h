/* Socket addresses, as far as this driver gives them to the provider. Needs ntddk.h before it, as the kit's headers here do. */
#pragma once

#define AF_INET 2
#define AF_INET6 23

typedef struct sockaddr {
    USHORT sa_family;
    CHAR sa_data[14];
} SOCKADDR, *PSOCKADDR;

typedef struct in_addr {
    ULONG S_addr;
} IN_ADDR;

typedef struct in6_addr {
    UCHAR Byte[16];
} IN6_ADDR;

typedef struct sockaddr_in {
    USHORT sin_family;
    USHORT sin_port;
    IN_ADDR sin_addr;
    CHAR sin_zero[8];
} SOCKADDR_IN;

typedef struct sockaddr_in6 {
    USHORT sin6_family;
    USHORT sin6_port;
    ULONG sin6_flowinfo;
    IN6_ADDR sin6_addr;
    ULONG sin6_scope_id;
} SOCKADDR_IN6;

typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    USHORT si_family;
} SOCKADDR_INET;
C_ASSERT(sizeof(SOCKADDR_INET) == 28);
