/* Functions that kernels call. Each is emitted where a body names it, with those that it names itself.
   A blank line ends a function. Conversions to integers are those of numpy on x86: what does not fit into 32 (or 64)
   bits becomes the least integer, and narrower types keep the low bits. Nothing here has undefined behaviour. */

/* In two choices, of which compilers make vectors in all loops. */
static inline float maximum_float(float a, float b) {
    const float m = a > b ? a : b;
    return a == a ? m : a;
}

static inline double maximum_double(double a, double b) {
    const double m = a > b ? a : b;
    return a == a ? m : a;
}

static inline float minimum_float(float a, float b) {
    const float m = a < b ? a : b;
    return a == a ? m : a;
}

static inline double minimum_double(double a, double b) {
    const double m = a < b ? a : b;
    return a == a ? m : a;
}

static inline float clamp_float(float v, float low, float high) {
    return v < low ? low : v > high ? high : v;
}

static inline double clamp_double(double v, double low, double high) {
    return v < low ? low : v > high ? high : v;
}

static inline int32_t saturate_float(float v, float low, float high) {
    v = v < low ? low : v;
    v = v > high ? high : v;
    return v == v ? (int32_t)v : 0;
}

static inline int32_t saturate_double(double v, double low, double high) {
    v = v < low ? low : v;
    v = v > high ? high : v;
    return v == v ? (int32_t)v : 0;
}

static inline int32_t double_to_i32(double v) {
    return v > -2147483649.0 && v < 2147483648.0 ? (int32_t)v : INT32_MIN;
}

static inline int32_t float_to_i32(float v) {
    return v >= -2147483648.0f && v < 2147483648.0f ? (int32_t)v : INT32_MIN;
}

static inline int64_t double_to_i64(double v) {
    return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN;
}

static inline uint64_t double_to_u64(double v) {
    if (v >= 9223372036854775808.0) {
        return v < 18446744073709551616.0 ? (uint64_t)v : 0;
    }
    return (uint64_t)double_to_i64(v);
}

static inline int8_t double_to_i4(double v) {
    return (int8_t)((double_to_i32(v) & 15) ^ 8) - 8;
}

/* Truncated, the quotient in float of integers of 16 bits is exact, and so is the quotient in double of integers of
   32 bits. Compilers have vectors of both, but none of integer division. */
static inline int32_t divide_i16(int32_t a, int32_t b) {
    const int32_t q = (int32_t)((float)a / (b == 0 ? 1.0f : (float)b));
    return b == 0 ? 0 : q;
}

static inline int32_t divide_i32(int32_t a, int32_t b) {
    const double divisor = b == 0 || b == -1 ? 1.0 : (double)b;
    const int32_t q = (int32_t)((double)a / divisor);
    return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : q;
}

static inline int64_t divide_i64(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(UINT64_C(0) - (uint64_t)a) : a / b;
}

static inline uint32_t divide_u16(uint32_t a, uint32_t b) {
    return (uint32_t)divide_i16((int32_t)a, (int32_t)b);
}

static inline uint32_t divide_u32(uint32_t a, uint32_t b) {
    return b == 0 ? 0 : a / b;
}

static inline uint64_t divide_u64(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a / b;
}

static inline int32_t remainder_i16(int32_t a, int32_t b) {
    return b == 0 ? 0 : a - divide_i16(a, b) * b;
}

static inline int32_t remainder_i32(int32_t a, int32_t b) {
    return b == 0 ? 0 : (int32_t)((uint32_t)a - (uint32_t)divide_i32(a, b) * (uint32_t)b);
}

static inline int64_t remainder_i64(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}

static inline uint32_t remainder_u16(uint32_t a, uint32_t b) {
    return (uint32_t)remainder_i16((int32_t)a, (int32_t)b);
}

static inline uint32_t remainder_u32(uint32_t a, uint32_t b) {
    return b == 0 ? 0 : a % b;
}

static inline uint64_t remainder_u64(uint64_t a, uint64_t b) {
    return b == 0 ? 0 : a % b;
}

static inline int32_t modulo_i16(int32_t a, int32_t b) {
    const int32_t r = remainder_i16(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline int32_t modulo_i32(int32_t a, int32_t b) {
    const int32_t r = remainder_i32(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline int64_t modulo_i64(int64_t a, int64_t b) {
    const int64_t r = remainder_i64(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* fmodf: below 2^28 the quotient has so few bits that its product with b is exact in double. */
static inline float remainder_float(float a, float b) {
    const double x = fabs((double)a), y = fabs((double)b), q = x / y;
    if (!(q < 268435456.0 && y <= 3.40282346638528859812e38)) {
        return fmodf(a, b);
    }
    return copysignf((float)(x - (double)(int32_t)q * y), a);
}

/* fmod: below 2^26 the products of the quotient with both halves of b are exact. */
static inline double remainder_double(double a, double b) {
    const double x = fabs(a), y = fabs(b), q = x / y;
    if (!(q < 67108864.0 && y <= 1.7976931348623157e308 && y >= 1e-290)) {
        return fmod(a, b);
    }
    union { double d; uint64_t u; } high;
    high.d = y;
    high.u &= ~UINT64_C(0x7ffffff);
    const double t = (double)(int32_t)q;
    const double r = (x - t * high.d) - t * (y - high.d);
    return copysign(r < 0.0 ? r + y : r, a);
}

static inline float modulo_float(float a, float b) {
    const float r = fmodf(a, b);
    if (b == 0.0f || r != r) {
        return r;
    }
    return r == 0.0f ? copysignf(0.0f, b) : (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

static inline double modulo_double(double a, double b) {
    const double r = fmod(a, b);
    if (b == 0.0 || r != r) {
        return r;
    }
    return r == 0.0 ? copysign(0.0, b) : (r < 0.0) != (b < 0.0) ? r + b : r;
}

static inline uint64_t power_u64(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        result *= exponent & 1 ? base : 1;
        base *= base;
    }
    return result;
}

/* Compilers make a square root of a power of 0.5, which differs at -0 and -infinity. */
static inline float half_power_float(float a) {
    return a == -INFINITY ? INFINITY : sqrtf(a) + 0.0f;
}

static inline double half_power_double(double a) {
    return a == -INFINITY ? INFINITY : sqrt(a) + 0.0;
}

/* A single exponent: numpy's executor computes the usual ones without pow. */
static inline float power_float(float a, float b) {
    return b == 0.5f ? half_power_float(a) : b == 1.0f ? a : b == 2.0f ? a * a : b == 3.0f ? a * a * a : powf(a, b);
}

static inline double power_double(double a, double b) {
    return b == 0.5 ? half_power_double(a) : b == 1.0 ? a : b == 2.0 ? a * a : b == 3.0 ? a * a * a : pow(a, b);
}

/* Functions of double without branches, of which compilers make vectors.
   e^r - 1 for r up to log(2) / 2, by its series. */
static inline double small_expm1(double r) {
    const double q = r * r;
    double even = 2.08767569878681e-09, odd = 1.6059043836821613e-10;
    even = 2.755731922398589e-07 + q * even;
    odd = 2.505210838544172e-08 + q * odd;
    even = 2.48015873015873e-05 + q * even;
    odd = 2.7557319223985893e-06 + q * odd;
    even = 0.001388888888888889 + q * even;
    odd = 0.0001984126984126984 + q * odd;
    even = 0.041666666666666664 + q * even;
    odd = 0.008333333333333333 + q * odd;
    even = 0.5 + q * even;
    odd = 0.16666666666666666 + q * odd;
    return r + q * (even + r * odd);
}

/* x / log 2 as a whole number: adding 1.5 * 2^52 rounds. */
static inline double exponent_of(double x) {
    return (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
}

static inline double without_exponent(double x, double n) {
    return (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
}

/* 2^n for a whole number n from -1022 to 1023 */
static inline double power_of_two(double n) {
    union { double d; uint64_t u; } bits;
    bits.d = n + 6755399441055744.0;
    bits.u = (bits.u + 1023u) << 52;
    return bits.d;
}

/* e^x, within 1 ulp; in two factors, as 2^n alone may be too large or too small for a double */
static inline double exp_double(double x) {
    x = clamp_double(x, -746.0, 710.0);
    const double n = exponent_of(x);
    const double half = (n * 0.5 + 6755399441055744.0) - 6755399441055744.0;
    return (1.0 + small_expm1(without_exponent(x, n))) * power_of_two(half) * power_of_two(n - half);
}

static inline float exp_float(float x) {
    return expf(x);
}

/* log x, within 1 ulp: x = 2^k m, m from sqrt(1/2) to sqrt(2); log m = 2 s + s p, s = (m - 1) / (m + 1), by its series */
static inline double log_double(double x) {
    union { double d; uint64_t u; } v, k, m;
    const double denormal = x < 2.2250738585072014e-308 ? 1.0 : 0.0;
    v.d = x > 0.0 ? x : 1.0;
    v.d = v.d < 2.2250738585072014e-308 ? v.d * 18014398509481984.0 : v.d;
    k.u = (v.u + UINT64_C(0x00095f619980c433)) >> 52;
    m.u = v.u - (k.u << 52) + (UINT64_C(1023) << 52);
    k.u |= UINT64_C(0x4330000000000000);
    const double n = (k.d - 4503599627371519.0) - 54.0 * denormal;
    const double f = m.d - 1.0, s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double p = 0.09523809523809523;
    p = 0.10526315789473684 + z * p;
    p = 0.11764705882352941 + z * p;
    p = 0.13333333333333333 + z * p;
    p = 0.15384615384615385 + z * p;
    p = 0.18181818181818182 + z * p;
    p = 0.2222222222222222 + z * p;
    p = 0.2857142857142857 + z * p;
    p = 0.4 + z * p;
    p = 0.6666666666666666 + z * p;
    p *= z;
    const double y = n * 6.93147180369123816490e-01 - ((h - (s * (h + p) + n * 1.90821492927058770002e-10)) - f);
    const double rest = x == 0.0 ? -(double)INFINITY : (double)NAN;
    const double positive = x < (double)INFINITY ? y : x;
    return x > 0.0 ? positive : rest;
}

static inline float log_float(float x) {
    return logf(x);
}

/* within 3 ulp, from m = e^2|x| - 1 */
static inline double tanh_double(double x) {
    const double a = fabs(x), w = a > 22.0 ? 44.0 : a + a;
    const double n = exponent_of(w), s = power_of_two(n);
    const double m = s * small_expm1(without_exponent(w, n)) + (s - 1.0);
    return copysign(m / (m + 2.0), x);
}

static inline float tanh_float(float x) {
    return tanhf(x);
}

static inline float sigmoid_float(float x) {
    return 1.0f / (expf(-x) + 1.0f);
}

static inline double sigmoid_double(double x) {
    return 1.0 / (exp_double(-x) + 1.0);
}

static inline float softplus_float(float x) {
    return maximum_float(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

static inline double softplus_double(double x) {
    return maximum_double(x, 0.0) + log1p(exp_double(-fabs(x)));
}

/* The rational approximation of erf on [-4, 4] that Eigen and XLA use; below 4 units in the last place. */
static inline float erf_float(float x) {
    const float v = clamp_float(x, -4.0f, 4.0f);
    const float s = v * v;
    float odd = -2.72614225801306e-10f;
    odd = odd * s + 2.77068142495902e-08f;
    odd = odd * s + -2.10102402082508e-06f;
    odd = odd * s + -5.69250639462346e-05f;
    odd = odd * s + -7.34990630326855e-04f;
    odd = odd * s + -2.95459980854025e-03f;
    odd = odd * s + -1.60960333262415e-02f;
    float even = -1.45660718464996e-05f;
    even = even * s + -2.13374055278905e-04f;
    even = even * s + -1.68282697438203e-03f;
    even = even * s + -7.37332916720468e-03f;
    even = even * s + -1.42647390514189e-02f;
    return clamp_float(odd * v / even, -1.0f, 1.0f);
}

static inline double erf_double(double x) {
    return erf(x);
}

static inline float gelu_float(float x) {
    return 0.5f * x * (1.0f + erf_float(x * 0.707106769f));
}

static inline double gelu_double(double x) {
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654757));
}

static inline float gelu_tanh_float(float x) {
    return 0.5f * x * (1.0f + tanhf(0.797884583f * (x + 0.0447149985f * x * x * x)));
}

static inline double gelu_tanh_double(double x) {
    return 0.5 * x * (1.0 + tanh_double(0.79788456080286541 * (x + 0.044714999999999998 * x * x * x)));
}

static inline ptrdiff_t clamped_index(int64_t i, ptrdiff_t n) {
    const int64_t wrapped = i < 0 ? i + n : i;
    return (ptrdiff_t)(wrapped < 0 ? 0 : wrapped >= n ? n - 1 : wrapped);
}

/* A double as a float from which rounding once more, to half precision, gives what rounding at once would. */
static inline float round_to_odd(double v) {
    union { float f; uint32_t u; } r;
    r.f = (float)v;
    if (r.f - r.f == 0.0f && (double)r.f != v && !(r.u & 1u)) {
        r.u += ((double)r.f < v) == (v > 0.0) ? 1u : UINT32_MAX;
    }
    return r.f;
}

static inline float qlinear_sum(int32_t a, int32_t b, float ra, float rb, float za, float zb, float zc) {
    const float offsets = (float)((double)ra * (double)za + (double)(rb * zb));
    const float constant = zc - offsets;
    const float right = (float)((double)b * (double)rb + (double)constant);
    return (float)((double)a * (double)ra + (double)right);
}

/* The product is a variable of its own, so that no compiler may fuse it with the sum. */
static inline float qlinear_product(float a, float b, float scale, float zero) {
    const float product = a * b * scale;
    return product + zero;
}

/* A place on an axis of n elements, negative ones counted from the end; -1 where there is none. */
static inline ptrdiff_t found_index(int64_t i, ptrdiff_t n) {
    const int64_t wrapped = i < 0 ? i + n : i;
    return wrapped >= 0 && wrapped < n ? (ptrdiff_t)wrapped : -1;
}

static inline float leaky_float(float v, float slope) {
    return v < 0.0f ? v * slope : v;
}
