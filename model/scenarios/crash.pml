/* A process crashes at any moment, and callers leave. 2 processes with 2 readers each, 1 invalidation, 1 expiry. */
#define NP 2
#define NR 2
#define NF 3
#define NTOK 4
#define NINV 1
#define NEXP 1
#define CRASH
#define NCRASH 1
#define LEAVE
#define NLEAVE 1
#include "../model.pml"
