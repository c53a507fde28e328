// A tile of a matrix times the activations of some tokens. A token's arithmetic is the same whatever the number of
// tokens beside it: in every lane two chains of multiply-adds, for the even and the odd columns of a group, are joined,
// scaled and added up group by group.

// How much is computed at once: the chains and totals, 3 x tokens x vectors of 16 lanes, have to fit into the
// registers.
#if defined(__AVX512F__)
#define TOKENS_AT_ONCE 4
#define VECTORS_OF_ONE 4
#else  // AVX2 has 16 registers of 8 lanes, NEON 32 of 4
#define TOKENS_AT_ONCE 2
#define VECTORS_OF_ONE 2
#endif

#define UNROLL _Pragma("clang loop unroll(full)")

// Of some tokens, a stride apart. `values` and the same ones as quants of 4 and of 8 bits need them; the sums of the
// halves of groups are for centres and minimums.
struct activations {
  const float *values, *for_4_bits, *for_8_bits, *half_sums;
  i64 value_stride, scaled_stride, half_sum_stride;
};

// FORMATS(f) is f(x) for each format x that the model has: only these are compiled.
#define OR_IS_OF_4_BITS(format) || bits_of(format) == 4
#define OR_IS_OF_8_BITS(format) || bits_of(format) == 8
#define HAS_4_BITS (0 FORMATS(OR_IS_OF_4_BITS))
#define HAS_8_BITS (0 FORMATS(OR_IS_OF_8_BITS))

INLINE void sum_halves(float* half_sums, const float* values, i64 groups) {
  for (i64 i = 0; i < 2 * groups; i++) half_sums[i] = sum_lanes(*(const vf32*)(values + i * HALF_GROUP));
}

// Makes up for the powers of two that load_weights leaves in quants of `bits`.
INLINE void scale_columns(const int bits, float* out, const float* values, i64 groups) {
  vf32 factors;
  UNROLL for (int i = 0; i < LANES; i++) factors[i] = factor_of_column(bits, i);
  for (i64 i = 0; i < groups * GROUP; i += LANES) *(vf32*)(out + i) = *(const vf32*)(values + i) * factors;
}

INLINE const float* activations_for(const int format, const struct activations* in, i64 token) {
  if (bits_of(format) == 4) return in->for_4_bits + token * in->scaled_stride;
  if (bits_of(format) == 8) return in->for_8_bits + token * in->scaled_stride;
  return in->values + token * in->value_stride;
}

// The tile's rows from `vector` on, for `tokens` tokens from `token` on. All but the pointers are constants after
// inlining.
INLINE void multiply_part(const int format, float* out, const u8* record, i64 groups, const struct activations* in,
                          i64 token, const int tokens, int vector, const int vectors) {
  vf32 total[TOKENS_AT_ONCE][VECTORS];
  const float *x[TOKENS_AT_ONCE], *half_sums[TOKENS_AT_ONCE];
  UNROLL for (int t = 0; t < tokens; t++) {
    x[t] = activations_for(format, in, token + t);
    half_sums[t] = in->half_sums + (token + t) * in->half_sum_stride;
    UNROLL for (int v = 0; v < vectors; v++) total[t][v] = (vf32){};
  }
  const int parts = parts_of(format), columns = GROUP / parts;
  const int columns_a_word = is_scaled(format) ? 32 / bits_of(format) : 2;
  for (i64 group = 0; group < groups; group++, record += record_bytes(format)) {
    UNROLL for (int part = 0; part < parts; part++) {
      vf32 chain[TOKENS_AT_ONCE][VECTORS][2];
      UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int v = 0; v < vectors; v++) chain[t][v][0] = chain[t][v][1] = (vf32){};
      for (int first = part * columns; first < (part + 1) * columns; first += columns_a_word)
        UNROLL for (int v = 0; v < vectors; v++)
          UNROLL for (int i = 0; i < columns_a_word; i++) {
            const vf32 weights = load_weights(format, record, first + i, vector + v);
            UNROLL for (int t = 0; t < tokens; t++) chain[t][v][i & 1] += x[t][first + i] * weights;
          }
      UNROLL for (int v = 0; v < vectors; v++) {
        if (!is_scaled(format)) {
          UNROLL for (int t = 0; t < tokens; t++) total[t][v] += chain[t][v][0] + chain[t][v][1];
          continue;
        }
        const vf32 scale = load_scale(format, record, 0, part, vector + v);
        UNROLL for (int t = 0; t < tokens; t++) {
          const float sum = parts == 2 ? half_sums[t][part] : half_sums[t][0] + half_sums[t][1];
          vf32 product = chain[t][v][0] + chain[t][v][1];
          if (format & FORMAT_CENTRED) product -= centre_of(format) * sum;
          total[t][v] += product * scale;
          if (format & FORMAT_MINIMUM) total[t][v] += sum * load_scale(format, record, 1, part, vector + v);
        }
      }
    }
    UNROLL for (int t = 0; t < tokens; t++) x[t] += GROUP, half_sums[t] += 2;
  }
  UNROLL for (int t = 0; t < tokens; t++)
    UNROLL for (int v = 0; v < vectors; v++)
      *(vf32*)(out + (token + t) * TILE + (vector + v) * LANES) = total[t][v];
}

#define DEFINE_MULTIPLY(format)                                                                                     \
  static __attribute__((noinline)) void multiply_##format(float* out, const u8* records, i64 groups,                \
                                                          const struct activations* in, i64 count) {                \
    i64 token = 0;                                                                                                  \
    for (; token + TOKENS_AT_ONCE <= count; token += TOKENS_AT_ONCE)                                                \
      for (int v = 0; v < VECTORS; v++)                                                          \
        multiply_part(format, out, records, groups, in, token, TOKENS_AT_ONCE, v, 1);               \
    for (; token < count; token++)                                                                                  \
      for (int v = 0; v < VECTORS; v += VECTORS_OF_ONE)                                                             \
        multiply_part(format, out, records, groups, in, token, 1, v, VECTORS_OF_ONE);                               \
  }
FORMATS(DEFINE_MULTIPLY)

// out[t][0 .. TILE] for each of `count` tokens: rows of one tile times the activations.
static void multiply_tile(float* out, const struct matrix* matrix, i64 tile, const struct activations* in, i64 count) {
  const i64 groups = matrix->groups;
#define CASE_OF(format)                                                                                       \
  case format:                                                                                                \
    multiply_##format(out, matrix->records + tile * groups * record_bytes(format), groups, in, count);        \
    return;
  switch (matrix->format) { FORMATS(CASE_OF) }
}
