// Vectors of 16 lanes, whatever the machine has: one AVX-512 register, two of AVX2, four of NEON. All arithmetic below
// is written in them, so the order of every sum, and with it every bit of a result, is the same on each of these
// machines (as long as it has fused multiply-add, which the compiler uses for a * b + c).

typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef __fp16 f16;

#define LANES 16
typedef float vf32 __attribute__((vector_size(64)));
typedef int vi32 __attribute__((vector_size(64)));
typedef unsigned int vu32 __attribute__((vector_size(64)));
typedef u16 vu16 __attribute__((vector_size(32)));
typedef f16 vf16 __attribute__((vector_size(32)));
typedef float vf32_anywhere __attribute__((vector_size(64), aligned(4)));  // at an address that is no multiple of 64

#define INLINE static inline __attribute__((always_inline))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))

INLINE vf32 all_lanes(float x) { return (vf32){} + x; }

INLINE vf32 load_f16(const f16* p) { return __builtin_convertvector(*(const vf16*)p, vf32); }

INLINE vf32 load_bf16(const u16* p) { return (vf32)(__builtin_convertvector(*(const vu16*)p, vu32) << 16); }

INLINE vf32 where(vi32 condition, vf32 yes, vf32 no) {
  return (vf32)(((vi32)yes & condition) | ((vi32)no & ~condition));
}

INLINE float sum_lanes(vf32 v) {
  float sum = 0;
  for (int i = 0; i < LANES; i++) sum += v[i];
  return sum;
}

INLINE float max_lanes(vf32 v) {
  float max = v[0];
  for (int i = 1; i < LANES; i++) max = v[i] > max ? v[i] : max;
  return max;
}

// exp, relative error below 3e-7; 0 below -87, where float32 runs out of normal numbers, and at most e^88 above.
INLINE vf32 exp_lanes(vf32 x) {
  const float log2_e = 1.44269504f, ln_2_high = 0.693359375f, ln_2_low = -2.12194440e-4f;
  vi32 too_small = x < -87.0f;
  x = where(x > 88.0f, all_lanes(88.0f), x);
  vf32 y = x * log2_e;
  vf32 half_with_sign_of_y = (vf32)((vi32)all_lanes(0.5f) | ((vi32)y & (i32)0x80000000));
  vi32 whole = __builtin_convertvector(y + half_with_sign_of_y, vi32);
  vf32 n = __builtin_convertvector(whole, vf32);
  vf32 r = (x - n * ln_2_high) - n * ln_2_low;  // within half of ln 2; in two steps, so that it keeps its bits
  vf32 p = all_lanes(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (vf32)(((vi32)p + (whole << 23)) & ~too_small);
}

INLINE vf32 silu_lanes(vf32 x) { return x / (1.0f + exp_lanes(-x)); }
