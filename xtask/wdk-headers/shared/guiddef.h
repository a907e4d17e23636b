#pragma once
/*
 * guiddef.h: the GUID.
 *
 * Written for softndk from the documented interface of Windows kernel drivers: the types and functions that softndk and
 * the wdk crates use, under the names that the driver kit gives them, so that the generated Rust names are the same.
 * Not a replacement for the kit's header.
 */

typedef struct _GUID {
    unsigned long Data1;
    unsigned short Data2;
    unsigned short Data3;
    unsigned char Data4[8];
} GUID, *LPGUID;

typedef const GUID *LPCGUID;
