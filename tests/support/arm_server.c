/* Call the kernels that the standard input names, and write their results to the standard output; see arm_kernels.py.

   Arguments are 64 bits each: integers and addresses first, then the bits of floats.  On Arm these are passed in
   separate registers, so that every function can be called by one type. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 24 /* arguments */
#define GUARD 256 /* bytes before and after an array, all 0xFF */

#define FUNCTION(NAME) void NAME(void);
#include "functions.h"
#undef FUNCTION
#define FUNCTION(NAME) {#NAME, NAME},
static const struct {
    const char *name;
    void (*function)(void);
} functions[] = {
#include "functions.h"
};

#define INTEGERS(T) T, T, T, T, T, T, T, T
typedef double (*Any)(INTEGERS(int64_t), INTEGERS(int64_t), INTEGERS(int64_t), INTEGERS(double));

typedef struct {
    char kind;      /* 'i'nteger, 'f'loat's bits, 'a'rray of `value` bytes, 's'ame array as argument `value` */
    int64_t value;
} Argument;

static void read_all(void *out, size_t size) {
    if (size && fread(out, 1, size, stdin) != size) exit(0);
}

static uint8_t *guarded(int64_t size) {
    uint8_t *start = malloc((size_t)size + 2 * GUARD);
    memset(start, 0xFF, (size_t)size + 2 * GUARD);
    read_all(start + GUARD, (size_t)size);
    return start + GUARD;
}

static void check_guards(const uint8_t *array, int64_t size, const char *name) {
    for (int64_t i = 0; i < GUARD; i++)
        if (array[-1 - i] != 0xFF || array[size + i] != 0xFF) {
            fprintf(stderr, "%s wrote beside an array\n", name);
            exit(1);
        }
}

int main(void) {
    for (;;) {
        char name[64];
        int64_t count, integers[MOST] = {0}, n_integers = 0, n_floats = 0;
        double floats[8] = {0};
        Argument arguments[MOST];
        uint8_t *arrays[MOST] = {0};
        read_all(name, sizeof name);
        read_all(&count, sizeof count);
        for (int64_t i = 0; i < count; i++) {
            read_all(&arguments[i].kind, 1);
            read_all(&arguments[i].value, 8);
            const int64_t value = arguments[i].value;
            switch (arguments[i].kind) {
                case 'f': memcpy(&floats[n_floats++], &value, 8); break;
                case 'a': arrays[i] = guarded(value), integers[n_integers++] = (int64_t)(intptr_t)arrays[i]; break;
                case 's': integers[n_integers++] = (int64_t)(intptr_t)arrays[value]; break;
                default: integers[n_integers++] = value;
            }
        }
        Any function = 0;
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            if (!strcmp(functions[i].name, name)) function = (Any)functions[i].function;
#define FROM(X, I) X[I], X[I + 1], X[I + 2], X[I + 3], X[I + 4], X[I + 5], X[I + 6], X[I + 7]
        const double result =
            function(FROM(integers, 0), FROM(integers, 8), FROM(integers, 16), FROM(floats, 0));
        fwrite(&result, 8, 1, stdout);
        for (int64_t i = 0; i < count; i++)
            if (arguments[i].kind == 'a') {
                check_guards(arrays[i], arguments[i].value, name);
                fwrite(arrays[i], 1, (size_t)arguments[i].value, stdout);
                free(arrays[i] - GUARD);
            }
        fflush(stdout);
    }
}
