/* A host in C: a machine that wears out, described, simulated and controlled here; fastcmdp does the drawing and the
   updates. Nothing to link with: the functions come in through the pointers of fcmdp_api.

     cc -O2 -shared -fPIC -o libmachine.so machine.c        (fastcmdp.h: see run.py) */
#include <math.h>
#include <stdlib.h>

#include "fastcmdp.h"

enum { WEAR = 12, RUN = 0, REPAIR = 1, N_CHOICES = 2 * WEAR, N_BRANCHES = 3 * WEAR, INNER = 100 };

static const double GAMMA = 0.95;
static const double LIMIT = 1.0; /* on the discounted number of repairs */

/* Choice 2 s runs the machine at wear s: it earns 1 - s / WEAR and wears by one or not. Choice 2 s + 1 repairs it. */
static void describe(fcmdp_rows *rows, int64_t *state_to_choice, int64_t *choice_to_branch, int32_t *target,
                     double *prob, double *signals, double *start) {
  for (int s = 0; s < WEAR; ++s) {
    const int run = 2 * s + RUN, repair = 2 * s + REPAIR;
    state_to_choice[s] = run;
    choice_to_branch[run] = 3 * s;
    choice_to_branch[repair] = 3 * s + 2;
    target[3 * s] = s;
    target[3 * s + 1] = s + 1 < WEAR ? s + 1 : s;
    target[3 * s + 2] = 0;
    prob[3 * s] = 0.75;
    prob[3 * s + 1] = 0.25;
    prob[3 * s + 2] = 1.0;
    signals[2 * run] = 1.0 - (double)s / WEAR;
    signals[2 * repair] = 0.0;
    /* J_c >= 0 says that the discounted number of repairs is at most LIMIT. */
    signals[2 * run + 1] = (1.0 - GAMMA) * LIMIT;
    signals[2 * repair + 1] = (1.0 - GAMMA) * LIMIT - 1.0;
    start[s] = s == 0;
  }
  state_to_choice[WEAR] = N_CHOICES;
  choice_to_branch[N_CHOICES] = N_BRANCHES;
  *rows = (fcmdp_rows){WEAR, N_CHOICES, N_BRANCHES, 2, state_to_choice, choice_to_branch, target, prob, signals,
                       start, GAMMA};
}

/* PD-ANPG with constant steps: theta[N_CHOICES], *dual and the sums of `episodes` rollouts' signals in total[2]. */
int64_t machine(const fcmdp_api *f, uint64_t seed, int64_t outer, int64_t episodes, double *theta, double *dual,
                double *total) {
  if (!fcmdp_fits(f)) return FCMDP_BAD_SIZE;
  int64_t state_to_choice[WEAR + 1], choice_to_branch[N_CHOICES + 1], pair[INNER + 1], q, status;
  int32_t branch_target[N_BRANCHES];
  double prob[N_BRANCHES], signals[2 * N_CHOICES], start[WEAR];
  double steps[4], policy[N_CHOICES], omega[N_CHOICES], target[INNER], advantage[2 * INNER], value[2 * (INNER + 1)];
  uint64_t lanes[4 * FCMDP_LANES], rng[4];
  fcmdp_rows rows;
  fcmdp_model model;

  describe(&rows, state_to_choice, choice_to_branch, branch_target, prob, signals, start);
  const int64_t bytes = f->memory(&rows);
  if (bytes < 0) return bytes;
  void *memory = malloc((size_t)bytes);
  if ((status = f->build(&rows, memory, &model)) != FCMDP_OK) goto end;
  uint32_t *entry = malloc(3 * (size_t)model.n_entries * sizeof *entry);

  f->streams(seed, 0, lanes);
  f->momentum(2.0, 0.1, steps);
  for (q = 0; q < N_CHOICES; ++q) theta[q] = 0.0;
  *dual = 0.0;
  if ((status = f->softmax(&model, theta, policy, entry)) != FCMDP_OK) goto free_entry;
  for (int64_t k = 0; k < outer; ++k) {
    status = f->sample_batch(&model, entry, lanes, INNER, 1, pair, value, advantage);
    if (status < 0) goto free_entry;
    for (int h = 0; h < INNER; ++h) target[h] = (advantage[2 * h] + *dual * advantage[2 * h + 1]) * model.horizon;
    if ((status = f->asgd_tabular(&model, policy, steps, pair, target, INNER, omega)) != FCMDP_OK) goto free_entry;
    f->dual_step(dual, 1, 0.0003, &value[2 * INNER + 1], INFINITY);
    for (q = 0; q < N_CHOICES; ++q) theta[q] = theta[q] + 0.001 * omega[q];
    if ((status = f->softmax(&model, theta, policy, entry)) != FCMDP_OK) goto free_entry;
  }

  /* Then follow the policy, one transition at a time, in episodes of geometric length. */
  f->stream(seed, 1, 0, rng);
  total[0] = total[1] = 0.0;
  for (int64_t e = 0; e < episodes; ++e) {
    int64_t left = f->geometric(rng, GAMMA);
    for (q = f->first_pair(&model, entry, rng);; q = f->step(&model, entry, rng, q)) {
      total[0] += fcmdp_signal(&model, q, 0);
      total[1] += fcmdp_signal(&model, q, 1);
      if (left-- == 0) break;
    }
  }
  status = FCMDP_OK;
free_entry:
  free(entry);
end:
  free(memory);
  return status;
}
