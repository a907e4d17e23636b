/*
 * What the driver kit's support library brings: the security cookie of /GS, the default functions of control flow guard,
 * and the load configuration through which the loader finds and replaces both. Left out of a build with the kit.
 */
typedef unsigned long long U64;

/* The value that the loader replaces by a random one. */
U64 __security_cookie = 0x00002B992DDFA232ull;

/* rcx: the value from the stack. A wrong one, or one whose upper bits are not zero, ends the system at once. */
__attribute__((naked)) void __security_check_cookie(void)
{
    __asm__ volatile("cmpq __security_cookie(%rip), %rcx\n\t"
                     "jne 1f\n\t"
                     "rolq $16, %rcx\n\t"
                     "testw $0xFFFF, %cx\n\t"
                     "jne 1f\n\t"
                     "ret\n"
                     "1: movl $2, %ecx\n\t"
                     "int $0x29");
}

__attribute__((naked)) static void GuardCheckNothing(void)
{
    __asm__ volatile("ret");
}

__attribute__((naked)) static void GuardDispatchAnywhere(void)
{
    __asm__ volatile("jmp *%rax");
}

__attribute__((section(".00cfg"))) void (*const volatile __guard_check_icall_fptr)(void) = GuardCheckNothing;
__attribute__((section(".00cfg"))) void (*const volatile __guard_dispatch_icall_fptr)(void) = GuardDispatchAnywhere;

/* The load configuration up to the guard's tables, which the linker makes; offsets are those of the 64-bit structure. */
__asm__(".section .rdata,\"dr\"\n\t"
        ".balign 16\n\t"
        ".globl _load_config_used\n"
        "_load_config_used:\n\t"
        ".long 0xC0\n\t"
        ".zero 0x54\n\t"
        ".quad __security_cookie\n\t" /* 0x58 */
        ".zero 0x10\n\t"
        ".quad __guard_check_icall_fptr\n\t" /* 0x70 */
        ".quad __guard_dispatch_icall_fptr\n\t"
        ".quad __guard_fids_table\n\t" /* 0x80 */
        ".quad __guard_fids_count\n\t"
        ".long __guard_flags\n\t" /* 0x90 */
        ".zero 0xC\n\t"
        ".quad __guard_iat_table\n\t" /* 0xA0 */
        ".quad __guard_iat_count\n\t"
        ".quad __guard_longjmp_table\n\t"
        ".quad __guard_longjmp_count");
