// What the engine hands over, the sizes that follow from the model, and where intermediate results lie. Before all of
// this text the engine defines HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, ROPE_DIM, QKV_BIAS and QK_NORM (0 or 1), EPSILON;
// CHUNK, tokens that are computed together; SPAN, positions that lie together; TILE, GROUP and FORMATS(f), see formats.h
// and matmul.h.

struct block {
  const float *attention_norm, *ffn_norm, *query_bias, *key_bias, *value_bias, *query_norm, *key_norm;
  struct matrix query, key, value, output, gate, up, down;
};

struct model {
  i64 blocks;
  const struct block* block;
  const float* output_norm;  // of the head
  struct matrix head;
  const float* rope;  // of every position: ROPE_DIM / 2 cosines, then as many sines
  i64 context;        // positions of a cache, a multiple of SPAN
  float* shared;      // activations that all threads work on
  float* own;         // each thread's, one behind the other
};

struct span;

// What one call does. Rows are HIDDEN floats.
struct pass {
  i64 threads;
  i64 position, tokens;
  const float* rows;
  float* result;       // or 0
  struct span* cache;  // of the request, see span_of; or 0: only the head is computed
  float* logits;       // of the last row, or 0
};

// All that a call finds in memory, written by the engine but for what is said there and for the three sizes.
struct stage {
  struct model model;
  i64 shared_floats, own_floats, cache_bytes;  // of all threads, of each thread, of a cache
  struct team team;
  struct pass shown;  // to the helping threads
};
_Static_assert(__builtin_offsetof(struct stage, team) == 128, "the engine's layout of struct stage");

#define HEADS_A_KV (HEADS / KV_HEADS)
#define QUERIES ROUND_UP(HEADS * HEAD_DIM, TILE)
#define KEYS ROUND_UP(KV_HEADS * HEAD_DIM, TILE)
#define HIDDEN_PADDED ROUND_UP(HIDDEN, TILE)
#define FFN_PADDED ROUND_UP(FFN, TILE)
#define VALUE_DIM ROUND_UP(HEAD_DIM, LANES)
#define SCALE (1.0f / __builtin_sqrtf(HEAD_DIM))

// A cache is cut into spans of positions, each with the keys and values of all blocks, so that it can lie in large
// pages and still takes no memory for positions that were never reached. In a span keys lie with positions along the
// lanes and values with dimensions along them.
struct span {  // of one head in one block
  float keys[SPAN / LANES][HEAD_DIM][LANES];
  float values[SPAN][VALUE_DIM];
};

// What one query head gets from one span: values weighted by exp(score - highest), and the sum of these weights.
struct part {
  float mixed[VALUE_DIM];
  float highest, sum;
  float padding[LANES - 2];
};

// Activations that all threads work on, CHUNK rows each.
#define AT_ROWS 0
#define AT_QUERIES (AT_ROWS + CHUNK * HIDDEN_PADDED)
#define AT_KEYS (AT_QUERIES + CHUNK * QUERIES)
#define AT_VALUES (AT_KEYS + CHUNK * KEYS)
#define AT_INNER (AT_VALUES + CHUNK * KEYS)
#define AT_PARTS (AT_INNER + CHUNK * FFN_PADDED)  // a part for each row, head and span
#define SHARED_FLOATS(context) (AT_PARTS + CHUNK * HEADS * ((context) / SPAN) * (i64)(sizeof(struct part) / 4))

// Each thread's own: normalised rows; mixed values; what a product needs of its activations; two tiles of products;
// scores of the heads that share a key.
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define WIDEST MAX2(MAX2(HIDDEN_PADDED, FFN_PADDED), QUERIES)
#define SUMS ROUND_UP(WIDEST / HALF_GROUP, LANES)
#define OWN_NORMED 0
#define OWN_MIXED (OWN_NORMED + CHUNK * HIDDEN_PADDED)
#define OWN_FOR_4_BITS (OWN_MIXED + CHUNK * QUERIES)
#define OWN_FOR_8_BITS (OWN_FOR_4_BITS + HAS_4_BITS * CHUNK * WIDEST)
#define OWN_SUMS (OWN_FOR_8_BITS + HAS_8_BITS * CHUNK * WIDEST)
#define OWN_TILE (OWN_SUMS + CHUNK * SUMS)
#define OWN_SECOND_TILE (OWN_TILE + CHUNK * TILE)
#define OWN_SCORES (OWN_SECOND_TILE + CHUNK * TILE)
#define OWN_FLOATS (OWN_SCORES + HEADS_A_KV * SPAN)

struct thread {
  struct walk walk;
  const struct model* model;
  const struct pass* pass;
  float *shared, *own;
  i64 position, count;  // of the chunk
};

static void normalise(float* out, const float* row, const float* weight, i64 size) {
  vf32 squares = {};
  i64 i = 0;
  for (; i + LANES <= size; i += LANES) {
    vf32 x = *(const vf32_anywhere*)(row + i);
    squares += x * x;
  }
  float sum = sum_lanes(squares);
  for (; i < size; i++) sum += row[i] * row[i];
  const float factor = 1.0f / __builtin_sqrtf(sum / size + EPSILON);
  for (i = 0; i + LANES <= size; i += LANES)
    *(vf32_anywhere*)(out + i) = *(const vf32_anywhere*)(row + i) * factor * *(const vf32_anywhere*)(weight + i);
  for (; i < size; i++) out[i] = row[i] * factor * weight[i];
}

// What products with `count` rows of activations need. Every thread prepares it for itself: that costs less than
// waiting for another to do it.
static struct activations prepare(struct thread* thread, const float* values, i64 stride, i64 columns, i64 count) {
  float *for_4_bits = thread->own + OWN_FOR_4_BITS, *for_8_bits = thread->own + OWN_FOR_8_BITS;
  float* sums = thread->own + OWN_SUMS;
  const i64 groups = CEIL_DIV(columns, GROUP);
  for (i64 t = 0; t < count; t++) {
    const float* row = values + t * stride;
    sum_halves(sums + t * SUMS, row, groups);
    if (HAS_4_BITS) scale_columns(4, for_4_bits + t * WIDEST, row, groups);
    if (HAS_8_BITS) scale_columns(8, for_8_bits + t * WIDEST, row, groups);
  }
  return (struct activations){values, for_4_bits, for_8_bits, sums, stride, WIDEST, SUMS};
}
