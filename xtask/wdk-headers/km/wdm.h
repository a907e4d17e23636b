#pragma once
typedef void *PVOID; typedef char CHAR; typedef const CHAR *PCSTR; typedef unsigned char UCHAR; typedef UCHAR BOOLEAN; typedef UCHAR KIRQL; typedef unsigned short USHORT; typedef unsigned short WCHAR; typedef WCHAR *PWCH; typedef unsigned long ULONG; typedef long LONG; typedef LONG NTSTATUS; typedef unsigned long long ULONG_PTR; typedef ULONG_PTR SIZE_T; typedef unsigned long long ULONG64; typedef ULONG64 POOL_FLAGS;
#define APC_LEVEL 1
typedef struct _UNICODE_STRING { USHORT Length; USHORT MaximumLength; PWCH Buffer; } UNICODE_STRING; typedef UNICODE_STRING *PUNICODE_STRING; typedef const UNICODE_STRING *PCUNICODE_STRING;
typedef struct _DRIVER_OBJECT *PDRIVER_OBJECT;
ULONG DbgPrint(PCSTR Format, ...);
PVOID ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag);
void ExFreePool(PVOID P);
KIRQL KeGetCurrentIrql(void);
