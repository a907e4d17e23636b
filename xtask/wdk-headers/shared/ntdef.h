#pragma once
/*
 * ntdef.h: the base types.
 *
 * Written for softndk from the documented interface of Windows kernel drivers: the types and functions that softndk and
 * the wdk crates use, under the names that the driver kit gives them, so that the generated Rust names are the same.
 * Not a replacement for the kit's header.
 */

#include "guiddef.h"

#define DECLSPEC_ALIGN(bytes) __declspec(align(bytes))
#define POINTER_ALIGNMENT DECLSPEC_ALIGN(8)

#define FALSE 0
#define TRUE 1

typedef void *PVOID;
typedef void *HANDLE, **PHANDLE;
typedef char CHAR, CCHAR, *PCHAR, *PCH, *PSTR;
typedef const CHAR *PCSTR, *PCCH;
typedef unsigned char UCHAR, BOOLEAN, KIRQL, *PUCHAR, *PBOOLEAN, *PKIRQL;
typedef short SHORT, CSHORT;
typedef unsigned short USHORT, *PUSHORT;
typedef unsigned short WCHAR, *PWCH, *PWSTR, *PWCHAR;
typedef const WCHAR *PCWSTR;
typedef int INT;
typedef unsigned int UINT, UINT32;
typedef long LONG, *PLONG;
typedef unsigned long ULONG, *PULONG, LOGICAL;
typedef long long LONGLONG, LONG64, LONG_PTR;
typedef unsigned long long ULONGLONG, ULONG64, UINT64, ULONG_PTR, *PULONG64, *PULONG_PTR;
typedef ULONG_PTR SIZE_T, *PSIZE_T, KAFFINITY, *PKAFFINITY, KSPIN_LOCK, *PKSPIN_LOCK;
typedef LONG NTSTATUS, KPRIORITY;
typedef CCHAR KPROCESSOR_MODE;
typedef ULONG ACCESS_MASK;

typedef union _LARGE_INTEGER {
    struct {
        ULONG LowPart;
        LONG HighPart;
    };
    struct {
        ULONG LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER, PHYSICAL_ADDRESS;

typedef union _ULARGE_INTEGER {
    struct {
        ULONG LowPart;
        ULONG HighPart;
    };
    struct {
        ULONG LowPart;
        ULONG HighPart;
    } u;
    ULONGLONG QuadPart;
} ULARGE_INTEGER, *PULARGE_INTEGER;

typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    PWCH Buffer;
} UNICODE_STRING, *PUNICODE_STRING;

typedef const UNICODE_STRING *PCUNICODE_STRING;

typedef struct _LIST_ENTRY {
    struct _LIST_ENTRY *Flink;
    struct _LIST_ENTRY *Blink;
} LIST_ENTRY, *PLIST_ENTRY;

typedef struct _PROCESSOR_NUMBER {
    USHORT Group;
    UCHAR Number;
    UCHAR Reserved;
} PROCESSOR_NUMBER, *PPROCESSOR_NUMBER;

typedef struct _GROUP_AFFINITY {
    KAFFINITY Mask;
    USHORT Group;
    USHORT Reserved[3];
} GROUP_AFFINITY, *PGROUP_AFFINITY;

typedef struct _OBJECT_ATTRIBUTES {
    ULONG Length;
    HANDLE RootDirectory;
    PUNICODE_STRING ObjectName;
    ULONG Attributes;
    PVOID SecurityDescriptor;
    PVOID SecurityQualityOfService;
} OBJECT_ATTRIBUTES, *POBJECT_ATTRIBUTES;

typedef struct _SINGLE_LIST_ENTRY {
    struct _SINGLE_LIST_ENTRY *Next;
} SINGLE_LIST_ENTRY, *PSINGLE_LIST_ENTRY;

typedef struct DECLSPEC_ALIGN(16) _SLIST_ENTRY {
    struct _SLIST_ENTRY *Next;
} SLIST_ENTRY, *PSLIST_ENTRY;

typedef union DECLSPEC_ALIGN(16) _SLIST_HEADER {
    struct {
        ULONGLONG Alignment;
        ULONGLONG Region;
    };
    struct {
        ULONGLONG Depth : 16;
        ULONGLONG Sequence : 48;
        ULONGLONG Reserved : 4;
        ULONGLONG NextEntry : 60;
#if defined(_AMD64_)
    } HeaderX64;
#else
    } HeaderArm64;
#endif
} SLIST_HEADER, *PSLIST_HEADER;

#define OBJ_CASE_INSENSITIVE 0x00000040L
#define OBJ_KERNEL_HANDLE 0x00000200L
