/* Stale copies: 2 processes with 2 readers each, 2 invalidations. A load may find that there is nothing. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#define NINV 2
#define NEXP 1
#define STALE
#include "../model.pml"
