/* Data by place: every word depends on the seed and on its place. */
#include "consumer.h"

#define STEP 0x9E3779B97F4A7C15ull

static ULONG64 Word(ULONG64 Seed, ULONG64 Index)
{
    ULONG64 word = (Seed + Index) * STEP;
    return word ^ (word >> 29);
}

static ULONG64 Mix(ULONG64 Sum, ULONG64 Word)
{
    return (Sum ^ Word) * 0x100000001B3ull;
}

/* Addresses and lengths are multiples of eight. */
ULONG64 PatternFill(PUCHAR Memory, ULONG Length, ULONG64 Seed)
{
    ULONG64 sum = Seed;
    for (ULONG offset = 0; offset < Length; offset += 8) {
        ULONG64 word = Word(Seed, offset / 8);
        *(ULONG64 *)(Memory + offset) = word;
        sum = Mix(sum, word);
    }
    return sum;
}

ULONG64 PatternChecksum(const UCHAR *Memory, ULONG Length, ULONG64 Seed, BOOLEAN *Right)
{
    ULONG64 sum = Seed;
    *Right = TRUE;
    for (ULONG offset = 0; offset < Length; offset += 8) {
        ULONG64 word = *(const ULONG64 *)(Memory + offset);
        if (word != Word(Seed, offset / 8)) {
            *Right = FALSE;
        }
        sum = Mix(sum, word);
    }
    return sum;
}

ULONG64 Random(ULONG64 *State)
{
    *State ^= *State << 13;
    *State ^= *State >> 7;
    *State ^= *State << 17;
    return *State;
}
