/* Threads for kernels that take microseconds.

   Helper threads are started once and kept.  A helper looks for work for a while before it sleeps, because the next
   product of a decoder step comes soon.  The caller computes too, and waits only for parts that a helper has begun: if
   helpers get no processor, it computes everything.  Only one caller at a time has the helpers; any other computes
   alone. */

#define _GNU_SOURCE
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define MOST_HELPERS 63
#define LOOKS 4000 /* for work, before a helper sleeps: about 0.1 ms */

static pthread_mutex_t use = PTHREAD_MUTEX_INITIALIZER, sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static int64_t n_helpers;
static atomic_int_fast64_t n_wanted, n_left, n_done, n_asleep;
static Part job;            /* it and its arguments do not change while a part of it is left or running */
static const void *job_arguments;

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Run one part that is left; return 0 if there is none.  The job is read only after a part of it has been claimed. */
static int run_one(void) {
    int_fast64_t left = atomic_load(&n_left);
    while (left > 0)
        if (atomic_compare_exchange_weak(&n_left, &left, left - 1)) {
            job(job_arguments, left - 1);
            atomic_fetch_add(&n_done, 1);
            return 1;
        }
    return 0;
}

static void *help(void *number) {
    const int_fast64_t own = (int_fast64_t)(intptr_t)number;
    for (;;) {
        for (int look = 0; look < LOOKS; look++) {
            if (own < atomic_load(&n_wanted) && run_one()) look = 0;
            pause_briefly();
        }
        pthread_mutex_lock(&sleep_lock);
        atomic_fetch_add(&n_asleep, 1);
        while (own >= atomic_load(&n_wanted) || atomic_load(&n_left) == 0) pthread_cond_wait(&wake, &sleep_lock);
        atomic_fetch_sub(&n_asleep, 1);
        pthread_mutex_unlock(&sleep_lock);
    }
    return 0;
}

/* Start helpers until there are n; they receive no signals, which Python's main thread handles. */
static void start_helpers(int64_t n) {
#ifndef _WIN32 /* which has no signals for threads */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
#endif
    for (pthread_t thread; n_helpers < n && n_helpers < MOST_HELPERS; n_helpers++) {
        if (pthread_create(&thread, 0, help, (void *)(intptr_t)n_helpers)) break;
        pthread_detach(thread);
    }
#ifndef _WIN32
    pthread_sigmask(SIG_SETMASK, &before, 0);
#endif
}

int run_parts(Part part, const void *arguments, int64_t n, int64_t threads) {
    if (threads < 2 || n < 2 || pthread_mutex_trylock(&use)) {
        for (int64_t i = 0; i < n; i++) part(arguments, i);
        return 0;
    }
    if (n_helpers < threads - 1) start_helpers(threads - 1);
    job = part, job_arguments = arguments;
    atomic_store(&n_done, 0);
    atomic_store(&n_wanted, threads - 1);
    atomic_store(&n_left, n);
    if (atomic_load(&n_asleep)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
    while (run_one()) {
    }
    for (int look = 0; atomic_load(&n_done) < n; look++)
        if (look < LOOKS)
            pause_briefly();
        else
            sched_yield();
    pthread_mutex_unlock(&use);
    return 0;
}
