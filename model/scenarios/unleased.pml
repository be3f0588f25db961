/* Loads that fail or have nothing to store, and loads without a lease: 2 processes with 2 readers and 1 reader, 2 invalidations. 1
 * load has no value to fill, 1 wait bound passes, 1 read finds the server down; at most 1 load without a lease in a process. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#ifndef NINV
#define NINV 2
#endif
#define NEXP 0
#define MARKS
#define NFAIL 1
#define UNLEASED
#define NALONE 1
#define NBOUND 1
#define NOUTAGE 1
#include "../model.pml"
