/* Simulators in C for fastcmdp.Simulator: the types of its functions, and draws from its streams.

   Give fastcmdp the functions of a shared library through ctypes, cffi, or their addresses:

       library = ctypes.CDLL("./mine.so")
       fc.Simulator(library.step, library.reset, n_state=2, n_actions=4, gamma=0.95, limits=[10.0])

   An address carries no types. A function with other arguments or another result is called all the same, and then
   reads and writes what it should not: declare yours with the types below, and the compiler will tell.

   Functions are called from several threads at once, each with arrays of its own. Keep nothing in static or global
   variables: a state is copied, and taken up again later, as the n_state numbers that it is.

   A value that is not finite stops the replicate with a message; return NAN to say that something went wrong. */
#ifndef FASTCMDP_SIMULATOR_H
#define FASTCMDP_SIMULATOR_H

#include <math.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Overwrite state[n_state] with the next state and costs[m] (zeros) with the costs, and return the reward, for an
   action from 0 to n_actions - 1. rng is uint64_t[4]: hand it on to the draws below. */
typedef double fastcmdp_step(double *state, int64_t action, uint64_t *rng, double *costs);

/* Overwrite state[n_state] with a start state. */
typedef void fastcmdp_reset(double *state, uint64_t *rng);

/* Write what policies see of a state to out[n_features]. */
typedef void fastcmdp_state_features(const double *state, double *out);

/* Instead: what they see of a state and an action. */
typedef void fastcmdp_choice_features(const double *state, int64_t action, double *out);

/* The next 64 random bits: SFC64, as numpy.random.SFC64 and fastcmdp.kernels.draws. */
static inline uint64_t fastcmdp_word(uint64_t *rng) {
    uint64_t word = rng[0] + rng[1] + rng[3]++;
    rng[0] = rng[1] ^ (rng[1] >> 11);
    rng[1] = rng[2] + (rng[2] << 3);
    rng[2] = ((rng[2] << 24) | (rng[2] >> 40)) + word;
    return word;
}

/* A double in [0, 1). */
static inline double fastcmdp_uniform(uint64_t *rng) { return (double)(fastcmdp_word(rng) >> 11) * 0x1p-53; }

/* An exponential number of mean 1. */
static inline double fastcmdp_exponential(uint64_t *rng) { return -log(1.0 - fastcmdp_uniform(rng)); }

/* T in {0, 1, 2, ...} with Pr(T = t) = (1 - gamma) gamma^t. */
static inline int64_t fastcmdp_geometric(uint64_t *rng, double gamma) {
    return (int64_t)(log(1.0 - fastcmdp_uniform(rng)) * (1.0 / log(gamma)));
}

/* A standard normal number by Box and Muller's method: two words, and not the numbers of draws.normal. */
static inline double fastcmdp_normal(uint64_t *rng) {
    double radius = sqrt(-2.0 * log(1.0 - fastcmdp_uniform(rng)));
    return radius * cos(6.283185307179586 * fastcmdp_uniform(rng));
}

/* i with probability weight[i] / sum, never one of weight 0; finite, none negative, not all 0 (then -1). */
static inline int64_t fastcmdp_categorical(uint64_t *rng, const double *weight, int64_t n) {
    double left = 0.0, unit = 1.0;
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) left += weight[i];
    if (left > 1.7976931348623157e308) { /* the sum has overflowed: once more, in smaller units */
        left = 0.0, unit = 0x1p-64;
        for (int64_t i = 0; i < n; i++) left += unit * weight[i];
    }
    left *= fastcmdp_uniform(rng);
    for (int64_t i = 0; i < n; i++)
        if (weight[i] > 0.0) {
            last = i;
            left -= unit * weight[i];
            if (left < 0.0) break;
        }
    return last;
}

#ifdef __cplusplus
}
#endif

#endif
