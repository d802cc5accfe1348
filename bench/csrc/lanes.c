/* The best C we know: the packed tables of fastcmdp, LANES rollouts in flight, one random word a transition,
   each stage over all lanes so that loads overlap, streams side by side for vector instructions. */
#include "stream.h"
#include <string.h>

#ifndef LANES
#define LANES 16
#endif

typedef struct {
    const uint32_t *start_entry, *branch_entry, *action_entry; /* [.][3] */
    const uint64_t *choice; /* [C][words]: row word, then signals as doubles */
    const int32_t *choice_state;
    const uint32_t *state_row;
    int64_t words, n_start;
    double log_gamma_inverse;
} model;

typedef struct {
    uint64_t a[LANES], b[LANES], c[LANES], d[LANES], word[LANES], row[LANES], code[LANES], q[LANES];
    int64_t left[LANES], job[LANES], stream[LANES];
    double r[LANES], k[LANES];
} lanes;

static inline uint64_t next(lanes *l, int i) {
    uint64_t word = l->a[i] + l->b[i] + l->d[i];
    l->a[i] = l->b[i] ^ (l->b[i] >> 11);
    l->b[i] = l->c[i] + (l->c[i] << 3);
    l->c[i] = ((l->c[i] << 24) | (l->c[i] >> 40)) + word;
    l->d[i]++;
    return word;
}

static inline uint64_t draw(const uint32_t *entry, uint64_t first, uint64_t n, uint64_t half) {
    uint64_t x = half * n;
    const uint32_t *e = entry + 3 * (first + (x >> 32));
    return e[2 - ((x & 0xffffffff) < e[0])];
}

static inline uint64_t draw_action(const uint32_t *entry, uint64_t code, uint64_t half) {
    uint64_t n = code & -code;
    return draw(entry, (code ^ n) >> 1, n, half);
}

static inline __attribute__((always_inline)) void draw_words(lanes *l) {
#pragma GCC unroll 1
    for (int i = 0; i < LANES; i++) { /* next, written out for vector instructions */
        uint64_t b = l->b[i], c = l->c[i], d = l->d[i], word = l->a[i] + b + d;
        l->a[i] = b ^ (b >> 11);
        l->b[i] = c + (c << 3);
        l->c[i] = ((c << 24) | (c >> 40)) + word;
        l->d[i] = d + 1;
        l->word[i] = word;
    }
}

static inline __attribute__((always_inline)) int step(const model *m, lanes *l, int n) {
    int ended = 0;
    draw_words(l);
    for (int i = 0; i < n; i++)
        l->code[i] = draw(m->branch_entry, l->row[i] >> 24, l->row[i] & 0xffffff, l->word[i] >> 32);
    for (int i = 0; i < n; i++) l->q[i] = draw_action(m->action_entry, l->code[i], l->word[i] & 0xffffffff);
    for (int i = 0; i < n; i++) {
        const uint64_t *record = m->choice + l->q[i] * m->words;
        l->row[i] = record[0];
        l->r[i] += ((const double *)record)[1];
        l->k[i] += ((const double *)record)[2];
    }
    for (int i = 0; i < n; i++) ended += --l->left[i] == 0;
    return ended;
}

static inline int64_t begin(const model *m, lanes *l, int i, int64_t job, int64_t choice, uint32_t row) {
    int64_t horizon = (int64_t)(log(1.0 - unit(next(l, i))) * m->log_gamma_inverse);
    if (choice < 0) {
        uint64_t word = next(l, i);
        uint64_t code = row ? row : draw(m->start_entry, 0, m->n_start, word >> 32);
        choice = draw_action(m->action_entry, code, word & 0xffffffff);
    }
    const uint64_t *record = m->choice + choice * m->words;
    l->job[i] = job;
    l->left[i] = horizon;
    l->q[i] = choice;
    l->row[i] = record[0];
    l->r[i] = ((const double *)record)[1];
    l->k[i] = ((const double *)record)[2];
    return horizon;
}

static void swap(uint64_t *x, int i, int j) {
    uint64_t y = x[i];
    x[i] = x[j];
    x[j] = y;
}

static int64_t rollouts(const model *m, uint64_t *rng, int64_t n_jobs, const int64_t *choice, const uint32_t *row,
                        double *total, int64_t *last) {
    lanes l;
    memset(&l, 0, sizeof l);
    memcpy(l.a, rng, sizeof l.a);
    memcpy(l.b, rng + LANES, sizeof l.b);
    memcpy(l.c, rng + 2 * LANES, sizeof l.c);
    memcpy(l.d, rng + 3 * LANES, sizeof l.d);
    for (int i = 0; i < LANES; i++) {
        l.job[i] = -1;
        l.stream[i] = i;
    }
    int n = LANES, ended = 1;
    int64_t next_job = 0, transitions = 0;
    for (;;) {
        if (ended) {
            for (int i = 0; i < n;) {
                if (l.left[i]) {
                    i++;
                    continue;
                }
                if (l.job[i] >= 0) {
                    total[2 * l.job[i]] = l.r[i];
                    total[2 * l.job[i] + 1] = l.k[i];
                    last[l.job[i]] = l.q[i];
                    l.job[i] = -1;
                }
                if (next_job < n_jobs) {
                    transitions += begin(m, &l, i, next_job, choice[next_job], row[next_job]);
                    next_job++;
                } else {
                    n--;
                    uint64_t *words[] = {l.a, l.b, l.c, l.d, l.row, l.q, (uint64_t *)l.left, (uint64_t *)l.job,
                                         (uint64_t *)l.stream};
                    for (int k = 0; k < 9; k++) swap(words[k], i, n);
                    l.r[i] = l.r[n];
                    l.k[i] = l.k[n];
                }
            }
            if (!n) break;
        }
        ended = n == LANES ? step(m, &l, LANES) : step(m, &l, n);
    }
    for (int i = 0; i < LANES; i++) {
        int64_t j = l.stream[i];
        rng[j] = l.a[i];
        rng[LANES + j] = l.b[i];
        rng[2 * LANES + j] = l.c[i];
        rng[3 * LANES + j] = l.d[i];
    }
    return transitions;
}

/* n samples of Algorithm 1; job arrays, value_total and last are work space of 2 n. */
int64_t sample_batch(const model *m, int64_t n, uint64_t *rng, int64_t *job_choice, uint32_t *job_row, int64_t *pair,
                     int64_t *last, double *occupancy, double *value_total, double *advantage) {
    for (int64_t j = 0; j < n; j++) {
        job_choice[j] = -1;
        job_row[j] = 0;
    }
    int64_t transitions = rollouts(m, rng, n, job_choice, job_row, occupancy, pair);
    for (int64_t h = 0; h < n; h++) {
        job_choice[2 * h] = pair[h];
        job_choice[2 * h + 1] = -1;
        job_row[2 * h + 1] = m->state_row[m->choice_state[pair[h]]];
    }
    transitions += rollouts(m, rng, 2 * n, job_choice, job_row, value_total, last);
    for (int64_t h = 0; h < n; h++)
        for (int k = 0; k < 2; k++) advantage[2 * h + k] = value_total[4 * h + k] - value_total[4 * h + 2 + k];
    return transitions;
}
