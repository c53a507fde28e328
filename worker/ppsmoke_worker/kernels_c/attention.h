// Attention: rows turn into queries, keys and values with their positions, the last two enter the cache, and every
// query head mixes the values it attends to. Every head rotates dimension i with i + ROPE_DIM / 2: the engine has put
// the rows of llama's matrices in that order.

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

// Scores of the heads that share a key, SPAN apart, against the first `visible` positions of a span; behind these up to
// a whole vector -1e30. Gives each head's highest score.
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
    for (i64 head = 0; head < HEADS; head++) {
      const i64 spans = (thread->position + t) / SPAN + 1;
      join_parts(mixed + t * QUERIES + head * HEAD_DIM, attention_parts(thread, t, head), spans);
    }
  return prepare(thread, mixed, QUERIES, HEADS * HEAD_DIM, thread->count);
}
