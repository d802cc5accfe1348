/* Scores of a softmax policy over a network's outputs, as a careful programmer writes them: forward, softmax,
   backward. Layout of theta as in kernels/policy/network.py; state features, an output an action. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MOST 1024

static void activate(double *a, int64_t n, int relu) {
    if (relu)
        for (int64_t i = 0; i < n; i++) a[i] = a[i] > 0 ? a[i] : 0;
    else
        for (int64_t i = 0; i < n; i++) a[i] = tanh(a[i]);
}

static void slope(double *restrict e, const double *restrict a, int64_t n, int relu) {
    if (relu)
        for (int64_t i = 0; i < n; i++) e[i] = a[i] > 0 ? e[i] : 0;
    else
        for (int64_t i = 0; i < n; i++) e[i] *= 1 - a[i] * a[i];
}

/* a = activation of b + x U */
static void layer(const double *restrict x, int64_t n, const double *restrict U, double *restrict a, int64_t width,
                  int relu) {
    memcpy(a, U + n * width, width * sizeof *a);
    for (int64_t j = 0; j < n; j++)
        if (x[j] != 0)
            for (int64_t i = 0; i < width; i++) a[i] += x[j] * U[j * width + i];
    activate(a, width, relu);
}

/* gradient of a layer's weights and biases, for errors e after the slope */
static void layer_gradient(const double *restrict x, int64_t n, const double *restrict e, double *restrict g,
                           int64_t width) {
    for (int64_t j = 0; j < n; j++)
        if (x[j] != 0)
            for (int64_t i = 0; i < width; i++) g[j * width + i] = x[j] * e[i];
    memcpy(g + n * width, e, width * sizeof *e);
}

/* grad log pi(action) of n_pairs (state, action) pairs; score is [n_pairs][d] */
void scores(const double *features, int64_t n, const double *theta, int64_t H1, int64_t H2, int64_t n_actions, int relu,
            int64_t d, const int64_t *state, const int64_t *action, int64_t n_pairs, double *score) {
    double a1[MOST], a2[MOST], e1[MOST], e2[MOST], z[MOST];
    const double *U2 = theta + n * H1 + H1, *W = H2 ? U2 + H1 * H2 + H2 : U2;
    int64_t H = H2 ? H2 : H1;
    const double *c = W + n_actions * H;
    for (int64_t h = 0; h < n_pairs; h++) {
        const double *x = features + n * state[h], *a = H2 ? a2 : a1;
        double *g = score + d * h, *e = H2 ? e2 : e1, top = -INFINITY, total = 0;
        memset(g, 0, d * sizeof *g);
        layer(x, n, theta, a1, H1, relu);
        if (H2) layer(a1, H1, U2, a2, H2, relu);
        for (int64_t o = 0; o < n_actions; o++) {
            z[o] = c[o];
            for (int64_t i = 0; i < H; i++) z[o] += W[o * H + i] * a[i];
            top = z[o] > top ? z[o] : top;
        }
        for (int64_t o = 0; o < n_actions; o++) total += z[o] = exp(z[o] - top);
        memset(e, 0, H * sizeof *e);
        for (int64_t o = 0; o < n_actions; o++) {
            double w = (o == action[h]) - z[o] / total, *row = g + (W - theta) + o * H;
            for (int64_t i = 0; i < H; i++) {
                row[i] = w * a[i];
                e[i] += w * W[o * H + i];
            }
            g[(c - theta) + o] = w;
        }
        slope(e, a, H, relu);
        if (H2) {
            layer_gradient(a1, H1, e2, g + (U2 - theta), H2);
            for (int64_t j = 0; j < H1; j++) {
                e1[j] = 0;
                for (int64_t i = 0; i < H2; i++) e1[j] += U2[j * H2 + i] * e2[i];
            }
            slope(e1, a1, H1, relu);
        }
        layer_gradient(x, n, e1, g, H1);
    }
}
