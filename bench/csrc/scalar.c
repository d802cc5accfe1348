/* What a careful programmer writes first: alias tables, one rollout at a time, one 64-bit word a draw: its high half
   picks the entry, its low half is the coin. */
#include "stream.h"

typedef struct {
    const int64_t *state_to_choice, *choice_to_branch;
    const int32_t *target;                       /* [B] */
    const uint32_t *branch_accept, *action_accept, *start_accept; /* accept a coin below */
    const int32_t *branch_alias, *action_alias, *start_alias; /* steps to the alias */
    const double *signal;                        /* [C][2] */
    const int32_t *choice_state;
    int64_t n_states;
    double log_gamma_inverse;
} model;

static inline int64_t draw(const uint32_t *accept, const int32_t *alias, int64_t first, int64_t n, uint64_t word) {
    int64_t i = first + (((word >> 32) * n) >> 32);
    int64_t reject = (uint32_t)word >= accept[i]; /* arithmetic: a branch would be guessed wrong half the time */
    return i + alias[i] * reject;
}

static int64_t action(const model *m, int64_t s, uint64_t *rng) {
    int64_t first = m->state_to_choice[s];
    return draw(m->action_accept, m->action_alias, first, m->state_to_choice[s + 1] - first, sfc64(rng));
}

static int64_t rollout(const model *m, int64_t *q, double *total, uint64_t *rng) {
    int64_t horizon = (int64_t)(log(1.0 - unit(sfc64(rng))) * m->log_gamma_inverse);
    double r = m->signal[2 * *q], c = m->signal[2 * *q + 1];
    for (int64_t t = 0; t < horizon; t++) {
        int64_t first = m->choice_to_branch[*q], n = m->choice_to_branch[*q + 1] - first;
        int64_t b = draw(m->branch_accept, m->branch_alias, first, n, sfc64(rng));
        *q = action(m, m->target[b], rng);
        r += m->signal[2 * *q];
        c += m->signal[2 * *q + 1];
    }
    total[0] = r;
    total[1] = c;
    return horizon;
}

/* n samples of Algorithm 1: pair[n], occupancy[n][2], advantage[n][2]; returns the number of transitions. */
int64_t sample_batch(const model *m, int64_t n, uint64_t *rng, int64_t *pair, double *occupancy, double *advantage) {
    int64_t transitions = 0;
    for (int64_t h = 0; h < n; h++) {
        double q_total[2], v_total[2];
        int64_t s = draw(m->start_accept, m->start_alias, 0, m->n_states, sfc64(rng));
        int64_t q = action(m, s, rng);
        transitions += rollout(m, &q, occupancy + 2 * h, rng);
        pair[h] = q;
        transitions += rollout(m, &q, q_total, rng);
        q = action(m, m->choice_state[pair[h]], rng);
        transitions += rollout(m, &q, v_total, rng);
        advantage[2 * h] = q_total[0] - v_total[0];
        advantage[2 * h + 1] = q_total[1] - v_total[1];
    }
    return transitions;
}
