/* The threads on which chunks of loops run: one pool for the process, in C11 with POSIX threads.

   A second call while the chunks of a first one run, from another thread or from a chunk, runs
   its own chunks itself.  After a fork the child has no workers, and starts new ones when it
   needs them.  Workers wait actively for some microseconds, then sleep; nobody waits for one
   that has not woken up when all chunks are taken. */
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

typedef void (*tg_chunk)(void *context, ptrdiff_t chunk, ptrdiff_t worker);

enum { MOST = 64, SPINS = 4000, STACK = 8 << 20 };
#define OPEN 0x10000u

static struct {
  pthread_mutex_t busy; /* held by the call whose chunks run; guards what follows */
  pthread_mutex_t lock; /* held to change `turn`, and to go to sleep for it */
  pthread_cond_t start;
  atomic_uint turn; /* counts the calls */
  atomic_uint gate; /* workers inside, and OPEN while there may be chunks to take */
  atomic_ptrdiff_t next;
  ptrdiff_t chunks;
  tg_chunk run;
  void *context;
  int threads, workers, has_handler;
} pool = {
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .start = PTHREAD_COND_INITIALIZER,
};

static _Thread_local int is_inside;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static unsigned turn_now(void)
{
  return atomic_load_explicit(&pool.turn, memory_order_acquire);
}

static void take_chunks(ptrdiff_t worker)
{
  is_inside = 1;
  for (;;) {
    const ptrdiff_t c = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
    if (c >= pool.chunks) break;
    pool.run(pool.context, c, worker);
  }
  is_inside = 0;
}

/* What the call has set before it opened the gate is seen by who has passed it. */
static int enters(void)
{
  unsigned seen = atomic_load_explicit(&pool.gate, memory_order_relaxed);
  while (seen & OPEN)
    if (atomic_compare_exchange_weak_explicit(&pool.gate, &seen, seen + 1, memory_order_acquire,
                                              memory_order_relaxed))
      return 1;
  return 0;
}

static void *work(void *number)
{
  const ptrdiff_t worker = (ptrdiff_t)number;
  unsigned turn = 0;
  for (;;) {
    for (int k = 0; k < SPINS && turn_now() == turn; k++) relax();
    if (turn_now() == turn) {
      pthread_mutex_lock(&pool.lock);
      while (turn_now() == turn) pthread_cond_wait(&pool.start, &pool.lock);
      pthread_mutex_unlock(&pool.lock);
    }
    turn = turn_now();
    if (!enters()) continue;
    if (worker < pool.threads) take_chunks(worker);
    atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
  }
  return NULL;
}

/* Only the thread that called fork is left; locks may be held by others that are gone. */
static void in_child(void)
{
  pthread_mutex_init(&pool.busy, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.start, NULL);
  pool.workers = 0;
  atomic_store(&pool.gate, 0);
  is_inside = 0;
}

static void start_workers(int wanted)
{
  if (!pool.has_handler) {
    pthread_atfork(NULL, NULL, in_child);
    pool.has_handler = 1;
  }
  if (pool.workers >= wanted) return;
  /* Signals go to the threads of the program; kernels keep small arrays on the stack. */
  sigset_t all, before;
  pthread_attr_t attributes;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (pthread_t t; pool.workers < wanted; pool.workers++)
      if (pthread_create(&t, &attributes, work, (void *)(ptrdiff_t)(pool.workers + 1)) != 0) break;
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Run chunks 0 .. chunks-1 on up to `threads` threads, the caller among them; `worker` is below
   `threads`, and differs between chunks that run at once. */
__attribute__((visibility("default"))) void tg_pool_run(tg_chunk run, void *context,
                                                        ptrdiff_t chunks, int threads)
{
  threads = threads < MOST ? threads : MOST;
  if (is_inside || threads < 2 || chunks < 2 || pthread_mutex_trylock(&pool.busy) != 0) {
    for (ptrdiff_t c = 0; c < chunks; c++) run(context, c, 0);
    return;
  }
  start_workers(threads - 1);
  pool.run = run;
  pool.context = context;
  pool.chunks = chunks;
  pool.threads = threads;
  atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.gate, OPEN, memory_order_release);
  pthread_mutex_lock(&pool.lock);
  atomic_fetch_add_explicit(&pool.turn, 1, memory_order_release);
  pthread_cond_broadcast(&pool.start);
  pthread_mutex_unlock(&pool.lock);
  take_chunks(0);
  atomic_fetch_and_explicit(&pool.gate, ~OPEN, memory_order_relaxed);
  for (int k = 0; atomic_load_explicit(&pool.gate, memory_order_acquire) != 0; k++)
    if (k < SPINS)
      relax();
    else
      sched_yield();
  pthread_mutex_unlock(&pool.busy);
}

/* How many workers there are now, for tests. */
__attribute__((visibility("default"))) int tg_pool_workers(void)
{
  return pool.workers;
}
