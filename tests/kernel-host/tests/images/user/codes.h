/* The control codes of pending.sys, for the driver and the programs: CTL_CODE(FILE_DEVICE_UNKNOWN, 0x800 + n, method, any access). */
#pragma once

#define CODE(number, method) (0x22u << 16 | (0x800u + (number)) << 2 | (method))

/* Buffered: each byte of the input plus one. */
#define CODE_ECHO CODE(0, 0)
/* Direct: fills the buffer with the first byte of the input; says how many bytes are not zero. */
#define CODE_FILL CODE(1, 2)
#define CODE_COUNT CODE(2, 1)
/* Writes to a buffer that it was lent for reading. */
#define CODE_SCRIBBLE CODE(3, 1)
/* Pend, in the order in which they come; a direct buffer stays mapped. */
#define CODE_PEND CODE(4, 0)
#define CODE_PEND_OUT CODE(5, 2)
#define CODE_PEND_IN CODE(6, 1)
/* Completes the first that pends: status and Information. STATUS_DATA_ERROR when none does. */
#define CODE_RELEASE CODE(7, 0)
/* How many pend. */
#define CODE_OUTSTANDING CODE(8, 0)
/* Complete at once: with a warning and four bytes, with an error, marked pending. */
#define CODE_WARN CODE(9, 0)
#define CODE_FAIL CODE(10, 0)
#define CODE_LATE CODE(11, 0)
/* The number of the caller's process. */
#define CODE_PROCESS CODE(12, 0)
