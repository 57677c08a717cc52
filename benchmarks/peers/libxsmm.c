/* Debian's libxsmm-dev has archives and no shared library, so the loop over a batch is compiled with it. */
#include <libxsmm.h>
const char *version = LIBXSMM_VERSION;
#define MULTIPLY(NAME, TYPE, DISPATCH) \
int NAME(int m, int n, int k, const TYPE *a, const TYPE *b, TYPE *c, long batch, long sa, long sb, long sc) \
{ \
    const TYPE beta = 0; \
    /* its matrices have columns side by side, so it multiplies the transposes */ \
    const libxsmm_##DISPATCH##mmfunction kernel = \
        libxsmm_##DISPATCH##mmdispatch(n, m, k, NULL, NULL, NULL, NULL, &beta, NULL, NULL); \
    if (!kernel) \
        return 1; \
    _Pragma("omp parallel for schedule(static)") \
    for (long i = 0; i < batch; i++) \
        kernel(b + i * sb, a + i * sa, c + i * sc); \
    return 0; \
}
MULTIPLY(multiply_d, double, d)
MULTIPLY(multiply_f, float, s)
