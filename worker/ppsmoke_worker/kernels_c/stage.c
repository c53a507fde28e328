// A stage's blocks, and the head if it has one, for some tokens at consecutive positions: one call a pass. llama, qwen2 and
// qwen3; float32 activations. The engine puts the sizes of the model before this text:
//
//   HIDDEN FFN HEADS KV_HEADS HEAD_DIM ROPE_DIM  QKV_BIAS QK_NORM (0 or 1)  EPSILON  FORMATS(f)  CHUNK: tokens at once
//
// Every head rotates dimension i with i + ROPE_DIM / 2: the engine has put the rows of llama's matrices in that order.

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
  float* result;  // or 0
  struct span* cache;  // of the request, see span_of; or 0: only the head is computed
  float* logits;  // of the last row, or 0
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

// A cache is cut into spans of positions, each with the keys and values of all blocks, so that it can lie in large pages
// and still takes no memory for positions that were never reached. In a span keys lie with positions along the lanes and
// values with dimensions along them.
#define SPAN 256
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

// Each thread's own: normalised rows; mixed values; what a product needs of its activations; two tiles of products; scores
// of the heads that share a key.
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

// What products with `count` rows of activations need. Every thread prepares it for itself: that costs less than waiting
// for another to do it.
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

static struct activations normalised_rows(struct thread* thread, const float* weight) {
  float* normed = thread->own + OWN_NORMED;
  for (i64 t = 0; t < thread->count; t++)
    normalise(normed + t * HIDDEN_PADDED, thread->shared + AT_ROWS + t * HIDDEN_PADDED, weight, HIDDEN);
  return prepare(thread, normed, HIDDEN_PADDED, HIDDEN, thread->count);
}

static void project(struct thread* thread, const struct matrix* matrix, i64 tile, const struct activations* in,
                    const float* bias, float* out, i64 stride) {
  float* product = thread->own + OWN_TILE;
  multiply_tile(product, matrix, tile, in, thread->count);
  for (i64 t = 0; t < thread->count; t++)
    for (i64 i = 0; i < TILE; i += LANES) {
      vf32 sum = *(const vf32*)(product + t * TILE + i);
      if (bias) sum += *(const vf32*)(bias + tile * TILE + i);
      *(vf32*)(out + t * stride + tile * TILE + i) = sum;
    }
}

static void queries_keys_values(struct thread* thread, const struct block* block) {
  const i64 queries = block->query.tiles, keys = queries + block->key.tiles, pieces = keys + block->value.tiles;
  if (phase_is_open(&thread->walk)) {
    const struct activations in = normalised_rows(thread, block->attention_norm);
    float* shared = thread->shared;
    FOR_EACH_PIECE(&thread->walk, pieces)
      if (piece < queries)
        project(thread, &block->query, piece, &in, block->query_bias, shared + AT_QUERIES, QUERIES);
      else if (piece < keys)
        project(thread, &block->key, piece - queries, &in, block->key_bias, shared + AT_KEYS, KEYS);
      else
        project(thread, &block->value, piece - keys, &in, block->value_bias, shared + AT_VALUES, KEYS);
  }
  next_phase(&thread->walk);
}

static void rotate(float* head, const float* angles) {
  for (int i = 0; i < ROPE_DIM / 2; i++) {
    const float low = head[i], high = head[ROPE_DIM / 2 + i], cosine = angles[i], sine = angles[ROPE_DIM / 2 + i];
    head[i] = low * cosine - high * sine;
    head[ROPE_DIM / 2 + i] = high * cosine + low * sine;
  }
}

INLINE struct span* span_of(const struct thread* thread, i64 block, i64 head, i64 position) {
  return thread->pass->cache + (position / SPAN * thread->model->blocks + block) * KV_HEADS + head;
}

// Positions enter queries and keys; keys and values enter the cache. A piece is one key/value head of the chunk.
static void remember(struct thread* thread, i64 index) {
  const struct block* block = thread->model->block + index;
  FOR_EACH_PIECE(&thread->walk, KV_HEADS)
    for (i64 t = 0; t < thread->count; t++) {
      const i64 position = thread->position + t, in_span = position % SPAN;
      const float* angles = thread->model->rope + position * ROPE_DIM;
      float* query = thread->shared + AT_QUERIES + t * QUERIES + piece * HEADS_A_KV * HEAD_DIM;
      for (int i = 0; i < HEADS_A_KV; i++, query += HEAD_DIM) {
        if (QK_NORM) normalise(query, query, block->query_norm, HEAD_DIM);
        rotate(query, angles);
      }
      float* key = thread->shared + AT_KEYS + t * KEYS + piece * HEAD_DIM;
      if (QK_NORM) normalise(key, key, block->key_norm, HEAD_DIM);
      rotate(key, angles);
      const float* value = thread->shared + AT_VALUES + t * KEYS + piece * HEAD_DIM;
      struct span* span = span_of(thread, index, piece, position);
      for (int d = 0; d < HEAD_DIM; d++) span->keys[in_span / LANES][d][in_span % LANES] = key[d];
      for (int d = 0; d < HEAD_DIM; d++) span->values[in_span][d] = value[d];
    }
  next_phase(&thread->walk);
}

// Scores of the heads that share a key, SPAN apart, against the first `visible` positions of a span; behind these up to a
// whole vector -1e30. Gives each head's highest score.
static void score(float* scores, float highest[HEADS_A_KV], const float* query, const struct span* span, i64 visible) {
  const vi32 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  vf32 highest_by_lane[HEADS_A_KV];
  UNROLL for (int head = 0; head < HEADS_A_KV; head++) highest_by_lane[head] = all_lanes(-1e30f);
  for (i64 first = 0; first < visible; first += LANES) {
    const float(*keys)[LANES] = span->keys[first / LANES];
    vf32 even[HEADS_A_KV], odd[HEADS_A_KV];
    UNROLL for (int head = 0; head < HEADS_A_KV; head++) even[head] = odd[head] = (vf32){};
    for (int d = 0; d < HEAD_DIM; d += 2) {
      const vf32 here = *(const vf32*)keys[d], next = *(const vf32*)keys[d + 1];
      UNROLL for (int head = 0; head < HEADS_A_KV; head++) {
        even[head] += query[head * HEAD_DIM + d] * here;
        odd[head] += query[head * HEAD_DIM + d + 1] * next;
      }
    }
    const vi32 seen = lane + (int)first < (int)visible;
    UNROLL for (int head = 0; head < HEADS_A_KV; head++) {
      const vf32 s = where(seen, (even[head] + odd[head]) * SCALE, all_lanes(-1e30f));
      highest_by_lane[head] = where(s > highest_by_lane[head], s, highest_by_lane[head]);
      *(vf32*)(scores + head * SPAN + first) = s;
    }
  }
  for (int head = 0; head < HEADS_A_KV; head++) highest[head] = max_lanes(highest_by_lane[head]);
}

// Scores of one head become weights; returns their sum.
static float soften(float* scores, float highest, i64 visible) {
  vf32 sum = {};
  for (i64 first = 0; first < visible; first += LANES) {
    const vf32 weight = exp_lanes(*(const vf32*)(scores + first) - highest);
    *(vf32*)(scores + first) = weight;
    sum += weight;
  }
  return sum_lanes(sum);
}

// The sums of all these heads and vectors stay in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
#define VALUE_VECTORS_AT_ONCE (HEADS_A_KV > 4 ? 2 : 4)
#else
#define VALUE_VECTORS_AT_ONCE (HEADS_A_KV > 3 ? 1 : 2)
#endif

// Dimensions from `first` on of the weighted values; the parts of the heads are `stride` apart.
INLINE void mix(struct part* parts, i64 stride, const float* weights, const struct span* span, i64 visible,
                const int first, const int vectors) {
  vf32 sum[HEADS_A_KV][VALUE_VECTORS_AT_ONCE];
  UNROLL for (int head = 0; head < HEADS_A_KV; head++)
    UNROLL for (int v = 0; v < vectors; v++) sum[head][v] = (vf32){};
  for (i64 p = 0; p < visible; p++)
    UNROLL for (int v = 0; v < vectors; v++) {
      const vf32 value = *(const vf32*)(span->values[p] + first + v * LANES);
      UNROLL for (int head = 0; head < HEADS_A_KV; head++) sum[head][v] += weights[head * SPAN + p] * value;
    }
  UNROLL for (int head = 0; head < HEADS_A_KV; head++)
    UNROLL for (int v = 0; v < vectors; v++) *(vf32*)(parts[head * stride].mixed + first + v * LANES) = sum[head][v];
}

INLINE struct part* attention_parts(const struct thread* thread, i64 row, i64 head) {
  const i64 spans = thread->model->context / SPAN;
  return (struct part*)(thread->shared + AT_PARTS) + (row * HEADS + head) * spans;
}

// A piece is one row, one key/value head, one span: so even one row at a long context is work for several threads.
static void attend(struct thread* thread, i64 block) {
  const i64 spans = (thread->position + thread->count - 1) / SPAN + 1, stride = thread->model->context / SPAN;
  float *scores = thread->own + OWN_SCORES, highest[HEADS_A_KV];
  FOR_EACH_PIECE(&thread->walk, thread->count * KV_HEADS * spans) {
    const i64 index = piece % spans, kv_head = piece / spans % KV_HEADS, t = piece / spans / KV_HEADS;
    const i64 behind = thread->position + t + 1 - index * SPAN, visible = behind < SPAN ? behind : SPAN;
    if (visible <= 0) continue;
    const struct span* span = span_of(thread, block, kv_head, index * SPAN);
    struct part* parts = attention_parts(thread, t, kv_head * HEADS_A_KV) + index;
    score(scores, highest, thread->shared + AT_QUERIES + t * QUERIES + kv_head * HEADS_A_KV * HEAD_DIM, span, visible);
    for (int head = 0; head < HEADS_A_KV; head++) {
      parts[head * stride].highest = highest[head];
      parts[head * stride].sum = soften(scores + head * SPAN, highest[head], visible);
    }
    int d = 0;
    for (; d + VALUE_VECTORS_AT_ONCE * LANES <= VALUE_DIM; d += VALUE_VECTORS_AT_ONCE * LANES)
      mix(parts, stride, scores, span, visible, d, VALUE_VECTORS_AT_ONCE);
    for (; d < VALUE_DIM; d += LANES) mix(parts, stride, scores, span, visible, d, 1);
  }
  next_phase(&thread->walk);
}

// One head's parts put together, in the order of the spans.
static void join_parts(float* out, const struct part* parts, i64 spans) {
  float highest = -1e30f, sum = 0;
  vf32 mixed[VALUE_DIM / LANES];
  for (int v = 0; v < VALUE_DIM / LANES; v++) mixed[v] = (vf32){};
  for (i64 i = 0; i < spans; i++) highest = parts[i].highest > highest ? parts[i].highest : highest;
  for (i64 i = 0; i < spans; i++) {
    const float weight = exp_lanes(all_lanes(parts[i].highest - highest))[0];
    sum += weight * parts[i].sum;
    for (int v = 0; v < VALUE_DIM / LANES; v++) mixed[v] += weight * *(const vf32*)(parts[i].mixed + v * LANES);
  }
  const float factor = 1.0f / sum;
  for (int d = 0; d < HEAD_DIM; d++) out[d] = mixed[d / LANES][d % LANES] * factor;
}

static struct activations attended_rows(struct thread* thread) {
  float* mixed = thread->own + OWN_MIXED;
  for (i64 t = 0; t < thread->count; t++)
    for (i64 head = 0; head < HEADS; head++)
      join_parts(mixed + t * QUERIES + head * HEAD_DIM, attention_parts(thread, t, head), (thread->position + t) / SPAN + 1);
  return prepare(thread, mixed, QUERIES, HEADS * HEAD_DIM, thread->count);
}

static struct activations inner_rows(struct thread* thread) {
  return prepare(thread, thread->shared + AT_INNER, FFN_PADDED, FFN, thread->count);
}

// Adds a product to the rows.
static void project_back(struct thread* thread, const struct matrix* matrix,
                         struct activations (*activations)(struct thread*)) {
  if (phase_is_open(&thread->walk)) {
    const struct activations in = activations(thread);
    float *product = thread->own + OWN_TILE, *rows = thread->shared + AT_ROWS;
    FOR_EACH_PIECE(&thread->walk, matrix->tiles) {
      multiply_tile(product, matrix, piece, &in, thread->count);
      for (i64 t = 0; t < thread->count; t++)
        for (i64 i = 0; i < TILE; i += LANES)
          *(vf32*)(rows + t * HIDDEN_PADDED + piece * TILE + i) += *(const vf32*)(product + t * TILE + i);
    }
  }
  next_phase(&thread->walk);
}

static void gate_and_up(struct thread* thread, const struct block* block) {
  if (phase_is_open(&thread->walk)) {
    const struct activations in = normalised_rows(thread, block->ffn_norm);
    float *gate = thread->own + OWN_TILE, *up = thread->own + OWN_SECOND_TILE, *inner = thread->shared + AT_INNER;
    FOR_EACH_PIECE(&thread->walk, block->gate.tiles) {
      multiply_tile(gate, &block->gate, piece, &in, thread->count);
      multiply_tile(up, &block->up, piece, &in, thread->count);
      for (i64 t = 0; t < thread->count; t++)
        for (i64 i = 0; i < TILE; i += LANES) {
          const vf32 g = *(const vf32*)(gate + t * TILE + i), u = *(const vf32*)(up + t * TILE + i);
          *(vf32*)(inner + t * FFN_PADDED + piece * TILE + i) = silu_lanes(g) * u;
        }
    }
  }
  next_phase(&thread->walk);
}

// The rows of the chunk come in, or go out: a piece is one row.
static void take_rows(struct thread* thread, i64 done) {
  FOR_EACH_PIECE(&thread->walk, thread->count)
    for (i64 i = 0; i < HIDDEN; i++)
      thread->shared[AT_ROWS + piece * HIDDEN_PADDED + i] = thread->pass->rows[(done + piece) * HIDDEN + i];
  next_phase(&thread->walk);
}

static void give_rows(struct thread* thread, i64 done) {
  FOR_EACH_PIECE(&thread->walk, thread->count)
    for (i64 i = 0; i < HIDDEN; i++)
      thread->pass->result[(done + piece) * HIDDEN + i] = thread->shared[AT_ROWS + piece * HIDDEN_PADDED + i];
  next_phase(&thread->walk);
}

static void compute_logits(struct thread* thread) {
  const struct matrix* head = &thread->model->head;
  if (phase_is_open(&thread->walk)) {
    float* normed = thread->own + OWN_NORMED;
    normalise(normed, thread->shared + AT_ROWS + (thread->count - 1) * HIDDEN_PADDED, thread->model->output_norm, HIDDEN);
    const struct activations in = prepare(thread, normed, HIDDEN_PADDED, HIDDEN, 1);
    const i64 tiles_a_piece = 16, pieces = CEIL_DIV(head->tiles, tiles_a_piece);
    FOR_EACH_PIECE(&thread->walk, pieces)
      for (i64 tile = piece * tiles_a_piece; tile < (piece + 1) * tiles_a_piece && tile < head->tiles; tile++)
        multiply_tile(thread->pass->logits + tile * TILE, head, tile, &in, 1);
  }
  next_phase(&thread->walk);
}

static void run_pass(struct thread* thread) {
  const struct model* model = thread->model;
  const struct pass* pass = thread->pass;
  for (i64 done = 0; done < pass->tokens; done += thread->count) {
    thread->position = pass->position + done;
    thread->count = pass->tokens - done < CHUNK ? pass->tokens - done : CHUNK;
    take_rows(thread, done);
    for (i64 index = 0; pass->cache && index < model->blocks; index++) {
      const struct block* block = model->block + index;
      queries_keys_values(thread, block);
      remember(thread, index);
      attend(thread, index);
      project_back(thread, &block->output, attended_rows);
      gate_and_up(thread, block);
      project_back(thread, &block->down, inner_rows);
    }
    if (pass->result) give_rows(thread, done);
  }
  if (pass->logits) compute_logits(thread);
}

static struct thread thread_of(struct stage* stage, const struct pass* pass, i64 index) {
  const struct walk walk = {&stage->team, open_phase(&stage->team), pass->threads == 1, 0};
  const struct model* model = &stage->model;
  return (struct thread){walk, model, pass, model->shared, model->own + index * OWN_FLOATS, 0, 0};
}

// One pass by this thread and, if there are to be several, by those that wait in help().
static void lead(struct stage* stage, const struct pass* pass) {
  struct team* team = &stage->team;
  struct thread thread = thread_of(stage, pass, 0);
  if (pass->threads > 1) {
    __atomic_add_fetch(&team->generation, 1, __ATOMIC_SEQ_CST);
    stage->shown = *pass;
    team->first_phase = thread.walk.phase;
    __atomic_add_fetch(&team->generation, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->idle, __ATOMIC_SEQ_CST)) wake_all(team, &team->generation);
  }
  run_pass(&thread);
}

// Takes part in passes until `stop`.
static void help(struct stage* stage, i64 index) {
  struct team* team = &stage->team;
  for (u32 seen = 0, generation; (generation = next_generation(team, seen)) != STOPPED;) {
    // A copy, as the next pass may be written down while this thread still looks for work in an old one.
    const struct pass pass = stage->shown;
    struct thread thread = thread_of(stage, &pass, index);
    thread.walk.phase = team->first_phase;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->generation, __ATOMIC_SEQ_CST) != generation) continue;
    seen = generation;
    if (index < pass.threads) run_pass(&thread);
  }
}

// The one entry. Thread 0 runs a pass; the others help until STOP; MEASURE only says how much memory is needed.
#define MEASURE (-1)
#define STOP (-2)
struct job {
  i64 thread;
  struct pass pass;
};

void pp_stage(struct stage* stage, struct job* job) {
  if (job->thread == MEASURE) {
    stage->shared_floats = SHARED_FLOATS(stage->model.context);
    stage->own_floats = OWN_FLOATS;
    stage->cache_bytes = stage->model.context / SPAN * stage->model.blocks * KV_HEADS * sizeof(struct span);
  } else if (job->thread == STOP) {
    dismiss(&stage->team);
  } else if (job->thread == 0) {
    lead(stage, &job->pass);
  } else {
    help(stage, job->thread);
  }
}
