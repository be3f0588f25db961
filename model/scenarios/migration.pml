/* A slot migrates key by key: 2 processes with 2 readers each, 2 invalidations by script or key by key, 1 expiry. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#ifndef NINV
#define NINV 2
#endif
#define NEXP 1
#define MIGRATION
#define NMOVE 1
#include "../model.pml"
