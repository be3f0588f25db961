/* A process crashes: its readers are gone, and so is all that it had under way but what is on the wire. It may start again. */

inline crash(p) {
	crashes--;
	printf("@p%d|the process crashes\n", p);
	j = p * NF;
	do
	:: j < p * NF + NF ->
		F[j].table = 0; F[j].slot = 0;
		if
		:: F[j].st == SENT -> F[j].st = ADRIFT
		:: F[j].st == FILLING -> F[j].st = ADRIFT_FILL
		:: F[j].st == RELEASING || F[j].st == ADRIFT || F[j].st == ADRIFT_FILL
		:: else -> clear_flight(j)
		fi;
		j++
	:: else -> break
	od;
	j = p * NR;
	do
	:: j < p * NR + NR ->
		if
		:: R[j].st == WAITING -> finish_reader(j)
		:: else
		fi;
		j++
	:: else -> break
	od
}

proctype Crash(byte p) {
end:
	do
	:: d_step { crashes > 0 && PROCESS_BUSY(p) -> crash(p); END }
	od
}
