/* Progress with polls, and with a process that crashes: in every run in which nobody is left out for ever, every reader is done in
 * the end. 2 processes with 2 readers and 1 reader, 1 invalidation, 1 expiry. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#define NTOK 3
#define NINV 1
#define NEXP 1
#define CRASH
#define NCRASH 1
#include "../model.pml"
ltl everybody_is_done { <> ALL_DONE }
