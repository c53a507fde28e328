// Several threads on one pass. A pass is a chain of phases; a phase is a number of pieces of work that may run in any
// order. A thread takes the next piece by counting up a ticket, and whoever finishes the last piece opens the next
// phase. So a thread that the system has put aside keeps nobody waiting unless it holds a piece, and one that comes
// late just joins in. Which thread computes a piece changes nothing in it: results are the same bits for any number of
// threads.
//
// Who waits spins for a moment, then sleeps in the kernel (futex); nobody spins while there is no pass.

#define SPINS_IN_A_PASS 2000
#define SPINS_BETWEEN_PASSES 4000
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

typedef long (*syscall_function)(long number, ...);

struct team {
  syscall_function syscall;  // of the C library; this and the number are written by the engine
  i64 futex_number;
  u64 ticket __attribute__((aligned(64)));  // high half: the open phase; low half: its next piece
  u32 finished __attribute__((aligned(64)));  // pieces of the open phase
  u32 sleepers;                               // in a pass
  u32 generation __attribute__((aligned(64)));  // of the pass; odd while one is being written down
  u32 first_phase;                              // of the pass
  u32 idle;                                     // sleepers between passes
  u32 stop;
};

// One thread's way through a pass.
struct walk {
  struct team* team;
  u32 phase;
  i64 alone;  // no other thread takes part
  i64 next;   // piece, when alone
};

INLINE void relax(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

INLINE u32 open_phase(const struct team* team) { return (u32)(__atomic_load_n(&team->ticket, __ATOMIC_SEQ_CST) >> 32); }

// The low address has the low half: all machines this runs on are little-endian.
INLINE u32* phase_word(struct team* team) { return (u32*)&team->ticket + 1; }

INLINE void sleep_while(struct team* team, u32* word, u32 value) {
  team->syscall(team->futex_number, word, FUTEX_WAIT_PRIVATE, (i64)value, (void*)0);
}

INLINE void wake_all(struct team* team, u32* word) {
  team->syscall(team->futex_number, word, FUTEX_WAKE_PRIVATE, (i64)0x7fffffff);
}

// False when the others are through with this phase: then there is nothing to prepare for.
static int phase_is_open(const struct walk* walk) { return walk->alone || open_phase(walk->team) == walk->phase; }

// The next piece of `pieces`, or -1 when all are taken.
static i64 take_piece(struct walk* walk, i64 pieces) {
  if (walk->alone) return walk->next < pieces ? walk->next++ : -1;
  u64 ticket = __atomic_load_n(&walk->team->ticket, __ATOMIC_SEQ_CST);
  while ((u32)(ticket >> 32) == walk->phase && (u32)ticket < pieces)
    if (__atomic_compare_exchange_n(&walk->team->ticket, &ticket, ticket + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return (u32)ticket;
  return -1;
}

static void finish_piece(struct walk* walk, i64 pieces) {
  if (walk->alone) return;
  struct team* team = walk->team;
  if (__atomic_add_fetch(&team->finished, 1, __ATOMIC_SEQ_CST) != pieces) return;
  __atomic_store_n(&team->finished, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n(&team->ticket, (u64)(walk->phase + 1) << 32, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&team->sleepers, __ATOMIC_SEQ_CST)) wake_all(team, phase_word(team));
}

// Until every piece of this phase is finished.
static void next_phase(struct walk* walk) {
  struct team* team = walk->team;
  if (walk->alone) {
    walk->next = 0;
    return;
  }
  for (int spin = 0; open_phase(team) == walk->phase; spin++) {
    if (spin < SPINS_IN_A_PASS) {
      relax();
      continue;
    }
    __atomic_add_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
    sleep_while(team, phase_word(team), walk->phase);
    __atomic_sub_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
  }
  walk->phase++;
}

// for_each_piece(walk, pieces) { piece ... }: this thread's share of a phase.
#define FOR_EACH_PIECE(walk, pieces) \
  for (i64 piece; (piece = take_piece(walk, pieces)) >= 0; finish_piece(walk, pieces))

#define STOPPED 1  // no generation that could be returned: it is odd

// Waits for a pass other than `seen`.
static u32 next_generation(struct team* team, u32 seen) {
  for (int spin = 0;; spin++) {
    const u32 generation = __atomic_load_n(&team->generation, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->stop, __ATOMIC_SEQ_CST)) return STOPPED;
    if (generation != seen && generation % 2 == 0) return generation;
    if (spin < SPINS_BETWEEN_PASSES) {
      relax();
      continue;
    }
    __atomic_add_fetch(&team->idle, 1, __ATOMIC_SEQ_CST);
    sleep_while(team, &team->generation, generation);
    __atomic_sub_fetch(&team->idle, 1, __ATOMIC_SEQ_CST);
    spin = 0;
  }
}

static void dismiss(struct team* team) {
  __atomic_store_n(&team->stop, 1, __ATOMIC_SEQ_CST);
  wake_all(team, &team->generation);
}
