// A stage's blocks, and the head if it has one, for some tokens at consecutive positions: one call a pass. llama, qwen2
// and qwen3; float32 activations.

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

static struct activations inner_rows(struct thread* thread) {
  return prepare(thread, thread->shared + AT_INNER, FFN_PADDED, FFN, thread->count);
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
    float *normed = thread->own + OWN_NORMED, *last = thread->shared + AT_ROWS + (thread->count - 1) * HIDDEN_PADDED;
    normalise(normed, last, thread->model->output_norm, HIDDEN);
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
