/* The two slots of a key: 1 process with 3 readers, 2 invalidations, 2 expiries. */
#define NP 1
#define NR 3
#define NF 4
#ifndef NINV
#define NINV 2
#endif
#define NEXP 2
#include "../model.pml"
