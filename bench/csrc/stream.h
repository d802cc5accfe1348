/* SFC64, as in the kernels. */
#include <math.h>
#include <stdint.h>

static inline uint64_t sfc64(uint64_t *s) {
    uint64_t word = s[0] + s[1] + s[3]++;
    s[0] = s[1] ^ (s[1] >> 11);
    s[1] = s[2] + (s[2] << 3);
    s[2] = ((s[2] << 24) | (s[2] >> 40)) + word;
    return word;
}

static inline double unit(uint64_t word) { return (word >> 11) * 0x1p-53; }
