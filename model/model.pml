/* The protocol of leasecache. A scenario sets the bounds and what may happen, and includes this.
 *
 * A feature has a file of its own: its steps, as a process with one loop, which is started below. What it keeps beside is
 * in state.pml. Each step is one d_step: an execution on the server, or what the code does under one lock. */

#ifndef NK
#define NK 1                 /* keys */
#endif
#ifndef NTOK
#define NTOK 2               /* tokens of a flight that can be about at the same time */
#endif
#if !defined(FAULTS) && !defined(MIGRATION)
#define FORGETS_FILL
#endif

#include "state.pml"
#include "ghosts.pml"
#ifdef STALE
#define LOADS_HERE(p) (LOADS_IN((p) * NF) || LOADS_IN((p) * NF + 1) || LOADS_IN((p) * NF + 2))
#define LOADS_IN(f) (F[f].table && F[f].st == LOADING)
#endif
#if NF == 2
#define PROCESS_BUSY(p) (F[(p) * NF].st != NONE || F[(p) * NF + 1].st != NONE)
#else
#define PROCESS_BUSY(p) (F[(p) * NF].st != NONE || F[(p) * NF + 1].st != NONE || F[(p) * NF + 2].st != NONE)
#endif
#include "server.pml"
#ifdef STALE
#include "stale.pml"
#endif
#include "flight.pml"
#ifdef UNLEASED
#include "unleased.pml"
#endif
#ifdef MARKS
#include "marks.pml"
#endif
#ifdef BATCH
#include "batch.pml"
#else
#include "reader.pml"
#endif
#include "wire.pml"
#include "invalidate.pml"
#include "expiry.pml"
#ifdef FAULTS
#include "faults.pml"
#endif
#ifdef CRASH
#include "crash.pml"
#endif
#ifdef MIGRATION
#include "migration.pml"
#endif

/* No deadlock: when nothing can happen any more, every reader is done. */
#define IS_DONE(r) (R[r].st == DONE)
#if NP * NR == 1
#define ALL_DONE IS_DONE(0)
#elif NP * NR == 2
#define ALL_DONE (IS_DONE(0) && IS_DONE(1))
#elif NP * NR == 3
#define ALL_DONE (IS_DONE(0) && IS_DONE(1) && IS_DONE(2))
#elif NP * NR == 4
#define ALL_DONE (IS_DONE(0) && IS_DONE(1) && IS_DONE(2) && IS_DONE(3))
#else
#define ALL_DONE (IS_DONE(0) && IS_DONE(1) && IS_DONE(2) && IS_DONE(3) && IS_DONE(4) && IS_DONE(5))
#endif

init {
	byte x;
	atomic {
		do
		:: x < NP * NF ->
			run Flights(x);
			run Wire(x);
#ifdef FAULTS
			run Faults(x);
#endif
#ifdef MARKS
			run Marks(x);
#endif
#ifdef UNLEASED
			run Unleased(x);
#endif
#ifdef MIGRATION
			run Refusals(x);
#endif
			x++
		:: else -> break
		od;
		x = 0;
		do
		:: x < NP * NR -> run Readers(x); x++
		:: else -> break
		od;
		x = 0;
		do
		:: x < NK ->
			run Time(x);
			run Invalidator(x);
#ifdef MARKS
			run MarkTime(x);
#endif
#ifdef STALE
			run CopyTime(x);
#endif
			x++
		:: else -> break
		od;
		x = 0;
#ifdef CRASH
		do
		:: x < NP -> run Crash(x); x++
		:: else -> break
		od;
		x = 0;
#endif
#ifdef FAULTS
		do
		:: x < NFAULT -> run LateCopies(x); x++
		:: else -> break
		od;
		x = 0;
#endif
#ifdef MIGRATION
		run Migration();
#endif
#ifdef BATCH
		do
		:: x < NP -> run Group(x); x++
		:: else -> break
		od;
		x = 0;
#endif
#ifdef STALE /* a value is cached to begin with */
		S[0].v = 1; S[0].serial = 1; S[0].vserial = 1;
#endif
#ifdef ABSENT /* the last reader never comes */
		R[NP * NR - 1].st = DONE;
#endif
		skip
	}
	ALL_DONE
}
