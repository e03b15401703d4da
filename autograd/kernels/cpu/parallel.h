#ifndef PARALLEL_H
#define PARALLEL_H

#include <stdint.h>

/* A part of a computation; parts may run in any order, several at the same time. */
typedef void (*Part)(const void *arguments, int64_t index);

/* Run the parts 0 … n − 1 on up to `threads` threads, this one included; return when all are done. */
int run_parts(Part part, const void *arguments, int64_t n, int64_t threads);

#endif
