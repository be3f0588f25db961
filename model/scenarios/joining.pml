/* Joining: 2 processes with 2 readers each, 2 invalidations, 2 expiries. Requests and replies are delayed, none is lost. */
#define NP 2
#define NR 2
#define NF 3
#ifndef NINV
#define NINV 2
#endif
#define NEXP 2
#include "../model.pml"
