/* Reading addresses. */
#pragma once
#include <ws2ipdef.h>

NTKERNELAPI LONG RtlIpv4StringToAddressExW(PCWSTR AddressString, BOOLEAN Strict, IN_ADDR *Address, PUSHORT Port);
NTKERNELAPI LONG RtlIpv6StringToAddressExW(PCWSTR AddressString, IN6_ADDR *Address, PULONG ScopeId, PUSHORT Port);
