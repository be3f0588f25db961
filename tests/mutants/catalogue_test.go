//go:build mutants

package mutants

const (
	readLua       = "internal/protocol/read.lua"
	fillLua       = "internal/protocol/fill.lua"
	releaseLua    = "internal/protocol/release.lua"
	invalidateLua = "internal/protocol/invalidate.lua"
	deleteLua     = "internal/protocol/delete.lua"
	dropLua       = "internal/protocol/drop.lua"
)

// catalogue holds every mutant. A condition that can fail in two ways is there
// twice: always true, and always false.
var catalogue = []mutant{
	// read.lua
	{"read: a refresh gets the value", "G4", readLua, "if ARGV[4] ~= '1' then", "if true then", "RefreshTakesTheLeaseBesideAValue"},
	{"read: the value is never looked at", "G2", readLua, "if ARGV[4] ~= '1' then", "if false then", "ReadOrLease"},
	{"read: no value counts as one", "G2", readLua, "  if value then", "  if true then", "ReadOrLease"},
	{"read: a value counts as none", "G2", readLua, "  if value then", "  if false then", "ReadOrLease"},
	{"read: stale copies for all", "G5", readLua, "if ARGV[3] == '1' then", "if true then", "G5StaleCopyIsForWaiters"},
	{"read: stale copies for nobody", "G5", readLua, "if ARGV[3] == '1' then", "if false then", "G5StaleCopyIsForWaiters"},
	{"read: a stale copy of another type", "G5", readLua, "  if type(stale) == 'table' then", "  if false then", "G5StaleCopyOfAnotherType"},
	{"read: no stale copy is a string", "G5", readLua, "  if type(stale) == 'table' then", "  if true then", "G5StaleCopyIsForWaiters"},
	{"read: a lease without a token", "G2", readLua, "if ARGV[1] ~= '' then", "if true then", "ReadOrLease"},
	{"read: never a lease", "G2", readLua, "if ARGV[1] ~= '' then", "if false then", "ReadOrLease"},
	{"read: the lease is taken from its holder", "G2", readLua, "  if not held then\n    -- The", "  if true then\n    -- The", "G2OneLoadAcrossProcesses"},
	{"read: a free lease is not taken", "G2", readLua, "  if not held then\n    -- The", "  if false then\n    -- The", "ReadOrLease"},
	{"read: the lease does not expire", "G2", readLua, ", 'PX', ARGV[2])", ")", "ReadOrLease"},
	{"read: the lease has no nonce", "G1", readLua, "local nonce = time[1] .. string.format('%06d', tonumber(time[2]))", "local nonce = '1'", "G1LateCopyOfAnAcquisition"},
	{"read: the lease has no nonce (script)", "G1", readLua, "local nonce = time[1] .. string.format('%06d', tonumber(time[2]))", "local nonce = '1'", "G1LateAcquisitionRevivesNobody"},
	{"read: another's lease is mine", "G2", readLua, "  if string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then", "  if true then", "ReadOrLease"},
	{"read: my own lease is another's", "G1", readLua, "  if string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then", "  if false then", "G1ResentAcquisitionKeepsItsLease"},
	{"read: a token that begins like mine", "G1", readLua, "string.sub(held, 1, #ARGV[1] + 1) == ARGV[1] .. ':'", "string.sub(held, 1, #ARGV[1]) == ARGV[1]", "G1ResentAcquisitionKeepsItsLease"},
	{"read: a stale copy beside the lease always", "G5", readLua, "    if stale then\n      return {2", "    if true then\n      return {2", "G5StaleCopyIsForWaiters"},
	{"read: a stale copy beside the lease never", "G5", readLua, "    if stale then\n      return {2", "    if false then\n      return {2", "G5StaleCopyIsForWaiters"},
	{"read: a miss is a wait", "G2", readLua, "\nif not held then\n  return {0}", "\nif false then\n  return {0}", "ReadOrLease"},
	{"read: a wait is a miss", "G2", readLua, "\nif not held then\n  return {0}", "\nif true then\n  return {0}", "ReadOrLease"},
	{"read: waiters always get a stale copy", "G5", readLua, "\nif stale then\n  return {3", "\nif true then\n  return {3", "ReadOrLease"},
	{"read: waiters never get the stale copy", "G5", readLua, "\nif stale then\n  return {3", "\nif false then\n  return {3", "G5StaleCopyIsForWaiters"},

	// fill.lua
	{"fill: a TTL that is no number", "G1", fillLua, "not ttl or ttl < 1", "ttl < 1", "FillWithAnInvalidTTL"},
	{"fill: a TTL below one", "G1", fillLua, "not ttl or ttl < 1 or", "not ttl or", "FillWithAnInvalidTTL"},
	{"fill: a TTL with a fraction", "G1", fillLua, " or ttl ~= math.floor(ttl) then", " then", "FillWithAnInvalidTTL"},
	{"fill: every TTL is refused", "G1", fillLua, "if not ttl or ttl < 1 or ttl ~= math.floor(ttl) then", "if true then", "FillWhileTheLeaseIsHeld"},
	{"fill: without comparing the lease", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G1LoadBeforeAnInvalidationIsNotCached"},
	{"fill: without comparing the lease (new load)", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G1OldLoadIsNotCachedOverANewOne"},
	{"fill: without comparing the lease (late copy)", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G1LateCopyOfAFill"},
	{"fill: without comparing the lease (paused writer)", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G1PausedWriter"},
	{"fill: without comparing the lease (reader after)", "G3", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G3ReaderAfterInvalidationWhileALoadRuns"},
	{"fill: without comparing the lease (said of it)", "G4", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if true then", "G4RejectedLoadFails"},
	{"fill: any lease will do", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if redis.call('GET', KEYS[2]) then", "FillWithAnothersLease"},
	{"fill: the token without the nonce", "G1", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if string.sub(redis.call('GET', KEYS[2]) or '', 1, 33) == string.sub(ARGV[1], 1, 33) then", "G1LateCopyOfAnAcquisition"},
	{"fill: never", "G2", fillLua, "if redis.call('GET', KEYS[2]) == ARGV[1] then", "if false then", "FillWhileTheLeaseIsHeld"},
	{"fill: without a TTL", "G1", fillLua, "ARGV[2], 'PX', ARGV[3])", "ARGV[2])", "FillWhileTheLeaseIsHeld"},
	{"fill: the lease stays", "G2", fillLua, "redis.pcall('DEL', KEYS[2], KEYS[3])", "redis.pcall('DEL', KEYS[3])", "FillWhileTheLeaseIsHeld"},
	{"fill: the stale copy stays", "G5", fillLua, "redis.pcall('DEL', KEYS[2], KEYS[3])", "redis.pcall('DEL', KEYS[2])", "G5StaleCopyInsteadOfWaiting"},
	{"fill: a value of another type is an error", "G1", fillLua, "if redis.pcall('GET', KEYS[1]) == ARGV[2] then", "if redis.call('GET', KEYS[1]) == ARGV[2] then", "FillThatIsPresent"},
	{"fill: always present", "G1", fillLua, "if redis.pcall('GET', KEYS[1]) == ARGV[2] then", "if true then", "FillAfterTheLeaseEnded"},
	{"fill: never present", "G3", fillLua, "if redis.pcall('GET', KEYS[1]) == ARGV[2] then", "if false then", "G3FillThatIsPresentMayBeJoined"},
	{"fill: nobody is told", "waiting", fillLua, "if ARGV[4] ~= '' then", "if false then", "WaitersAreWoken"},
	{"fill: the channel of nobody is told", "waiting", fillLua, "if ARGV[4] ~= '' then", "if true then", "TestACL/without_wake-ups"},
	{"fill: fails where others may not be told", "G7", fillLua, "redis.pcall('SPUBLISH'", "redis.call('SPUBLISH'", "TestACL/a_user_without_rights_on_channels"},

	// release.lua
	{"release: of nothing", "G8", releaseLua, "if held and string", "if string", "ReleaseFreesItsOwnLeaseOnly"},
	{"release: of another's lease", "G2", releaseLua, " and string.sub(held, 1, #ARGV[1]) == ARGV[1] then", " then", "ReleaseFreesItsOwnLeaseOnly"},
	{"release: never", "G8", releaseLua, "if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then", "if false then", "G8LoadsWithoutAFillReleaseTheLease"},
	{"release: not by the token alone", "G8", releaseLua, "string.sub(held, 1, #ARGV[1]) == ARGV[1]", "held == ARGV[1]", "G8UnknownAcquisitionIsReleased"},
	{"release: nobody is told", "waiting", releaseLua, "if ARGV[2] ~= '' then", "if false then", "WaitersAreWoken"},
	{"release: the channel of nobody is told", "waiting", releaseLua, "if ARGV[2] ~= '' then", "if true then", "TestACL/without_wake-ups"},
	{"release: fails where others may not be told", "G7", releaseLua, "redis.pcall('SPUBLISH'", "redis.call('SPUBLISH'", "TestACL/a_user_without_rights_on_channels"},

	// invalidate.lua
	{"invalidate: the lease stays", "G1", invalidateLua, "redis.call('DEL', KEYS[2], KEYS[1])", "redis.call('DEL', KEYS[1])", "G1LoadBeforeAnInvalidationIsNotCached"},
	{"invalidate: the value stays", "G3", invalidateLua, "redis.call('DEL', KEYS[2], KEYS[1])", "redis.call('DEL', KEYS[2])", "InvalidateDeletesValueAndLease"},
	{"invalidate: always looks for a stale copy", "G7", invalidateLua, "if window > 0\n", "if true\n", "TestACL/without_stale_serving"},
	{"invalidate: a stale copy never", "G5", invalidateLua, "if window > 0\n", "if false\n", "G5StaleCopyInsteadOfWaiting"},
	{"invalidate: a stale copy of any type", "G5", invalidateLua, "  and redis.call('TYPE', KEYS[1]).ok == 'string'\n", "\n", "InvalidateDeletesValueAndLease"},
	{"invalidate: not-found is kept", "G5", invalidateLua, "\n  and redis.call('GETRANGE', KEYS[1], 0, #ARGV[2] - 1) ~= ARGV[2] then", " then", "G5NotFoundIsNotServedStale"},
	{"invalidate: not-found is kept (script)", "G5", invalidateLua, "\n  and redis.call('GETRANGE', KEYS[1], 0, #ARGV[2] - 1) ~= ARGV[2] then", " then", "G5NotFoundIsNeverKept"},
	{"invalidate: a value without expiry", "G5", invalidateLua, "  if left < 0 or left > window then", "  if left > window then", "G5StaleCopyDeadlines"},
	{"invalidate: the copy lives as long as the value", "G5", invalidateLua, "  if left < 0 or left > window then", "  if left < 0 then", "G5StaleCopyDeadlines"},
	{"invalidate: the copy outlives the value's TTL", "G5", invalidateLua, "  if left < 0 or left > window then", "  if true then", "G5StaleCopyDeadlines"},
	{"invalidate: a copy although its deadline was refused", "G5", invalidateLua, "  if redis.pcall('PEXPIRE', KEYS[1], left) == 1 then", "  redis.pcall('PEXPIRE', KEYS[1], left)\n  if true then", "TestACL/a_stale_copy_never_outlives"},
	{"invalidate: the copy is never made", "G5", invalidateLua, "  if redis.pcall('PEXPIRE', KEYS[1], left) == 1 then", "  if false then", "G5StaleCopyDeadlines"},
	{"invalidate: fails after its first write", "G7", invalidateLua, "redis.pcall('RENAME', KEYS[1], KEYS[3])", "redis.call('RENAME', KEYS[1], KEYS[3])", "TestACL/a_stale_copy_never_outlives"},
	{"invalidate: writes before what can be refused", "G7", invalidateLua, "local window = tonumber(ARGV[1])\n", "redis.call('DEL', KEYS[2])\nlocal window = tonumber(ARGV[1])\n", "TestACL/an_invalidation_that_is_refused"},
	{"invalidate: nobody is told", "waiting", invalidateLua, "if ARGV[3] ~= '' then", "if false then", "WaitersAreWoken"},
	{"invalidate: the channel of nobody is told", "waiting", invalidateLua, "if ARGV[3] ~= '' then", "if true then", "TestACL/without_wake-ups"},
	{"invalidate: fails where others may not be told", "G7", invalidateLua, "redis.pcall('SPUBLISH'", "redis.call('SPUBLISH'", "TestACL/a_user_without_rights_on_channels"},

	// delete.lua, drop.lua
	{"delete: nothing", "G7", deleteLua, "redis.call('DEL', KEYS[1])", "", "DeleteDeletesOneKey"},
	{"delete: nobody is told", "waiting", deleteLua, "if ARGV[1] ~= '' then", "if false then", "WaitersAreWoken"},
	{"delete: the channel of nobody is told", "waiting", deleteLua, "if ARGV[1] ~= '' then", "if true then", "TestACL/without_wake-ups"},
	{"delete: fails where others may not be told", "G7", deleteLua, "redis.pcall('SPUBLISH'", "redis.call('SPUBLISH'", "TestACL/a_user_without_rights_on_channels"},
	{"drop: without comparing", "G1", dropLua, "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then", "if false then", "DropComparesAndBacksOff"},
	{"drop: never", "reading", dropLua, "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then", "if true then", "DropComparesAndBacksOff"},
	{"drop: a value of another type is an error", "reading", dropLua, "if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then", "if redis.call('GET', KEYS[1]) ~= ARGV[1] then", "DropComparesAndBacksOff"},
	{"drop: without a back-off", "reading", dropLua, "if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then", "if false then", "UndecodableValueIsLoadedAfresh"},
	{"drop: always backs off", "reading", dropLua, "if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then", "if true then", "UndecodableValueIsLoadedAfresh"},

	// The core: what the joining rules rest on.
	{"join: who came after the load began was there", "G3", "flight.go", "return w.arrived < f.step", "return true", "G3ReaderAfterInvalidationWhileALoadRuns"},
	{"join: who came after a load that is not stored", "G3", "flight.go", "return w.arrived < f.step", "return true", "G3LoadsThatAreNotStoredAreNotJoinedLate"},
	{"join: a poll's value for all", "G3", "wait.go", "\tws := f.take(f.before)\n\tf.shard.mu.Unlock()\n\tdeliverDecoded(ws, o)\n\treturn 0, false", "\tws := f.take(everyone)\n\tf.shard.mu.Unlock()\n\tdeliverDecoded(ws, o)\n\treturn 0, false", "G3ReaderAfterInvalidationWhileAPollsReplyIsOnItsWay"},
	{"join: a poll's stale copy for all", "G5", "wait.go", "\tws := f.take(f.before)\n\tf.shard.mu.Unlock()\n\tf.c.stats.staleServed", "\tws := f.take(everyone)\n\tf.shard.mu.Unlock()\n\tf.c.stats.staleServed", "G5StaleCopyOfAPollIsNotForThoseWhoCameLater"},
	{"join: the stale copy beside the lease for all", "G5", "fill.go", "return w != leader && f.before(w) })", "return w != leader })", "G5StaleCopyBesideTheLeaseIsNotForThoseWhoCameLater"},
	{"join: until the fill's reply", "G3", "fill.go", "\tf.shard.mu.Lock()\n\tf.detach()\n\tf.shard.mu.Unlock()\n\n\to.sent", "\to.sent", "G3ReaderAfterInvalidationWhileTheFillsReplyIsOnItsWay"},
	{"join: a load that is not stored", "G3", "fill.go", "f.finish(f.before, leader, o, p.encoded)\n\t\tev.Err, ev.Outcome", "f.finish(everyone, leader, o, p.encoded)\n\t\tev.Err, ev.Outcome", "G3LoadsThatAreNotStoredAreNotJoinedLate"},
	{"join: a load whose fill is unknown", "G3", "fill.go", "ev.Outcome, ev.Err = LoadFillFailed, err\n\t\tf.finish(f.before,", "ev.Outcome, ev.Err = LoadFillFailed, err\n\t\tf.finish(everyone,", "G3LoadWhoseFillIsUnknownIsNotJoinedLate"},
	{"join: a load that was rejected", "G3", "fill.go", "o.uncached = LeaseLost\n\t\tf.finish(f.before,", "o.uncached = LeaseLost\n\t\tf.finish(everyone,", "G3ReaderAfterInvalidationWhileALoadRuns"},
	{"join: an accepted load for nobody late", "G2", "fill.go", "cached := everyone[V]", "cached := f.before", "G3JoinedLoadThatWasAccepted"},
	{"join: a refresh takes an older one's load", "G4", "fill.go", "cached = f.before // Refresh", "cached = everyone[V] // Refresh", "RefreshDoesNotJoinAnOlderLoad"},
	{"join: the load's beginning is not noted", "G3", "fill.go", "\tf.step = f.shard.next()\n\tf.leased = true", "\tf.leased = true", "G8PanicReachesThoseWhoWaited"},
	{"join: a load while the server is down", "G3", "unleased.go", "\t\tf.detach()\n\t\tf.step = f.shard.next()\n\t\tf.shard.mu.Unlock()\n\t\tf.loadUnleased()", "\t\tf.step = f.shard.next()\n\t\tf.shard.mu.Unlock()\n\t\tf.loadUnleased()", "G3LoadsWhileTheServerIsDownAreNotJoinedLate"},
	{"join: an invalidation overtakes nothing", "G3", "invalidate.go", "\tdefer c.overtake(key)\n", "", "G3LocalInvalidationOvertakesTheLoad"},
	{"join: who joined late waits for what was overtaken", "G3", "invalidate.go", "c.moveOn(s, f.kind, f.take(func(w *waiter[V]) bool { return !f.before(w) }))", "", "G3LocalInvalidationOvertakesTheLoad"},
	{"join: a moved waiter counts as new", "G3", "flight.go", "\tfor _, w := range ws {\n\t\tif !w.gone {", "\tfor _, w := range ws {\n\t\tw.arrived = s.next()\n\t\tif !w.gone {", "G3WhoMovesOnTakesWhatWasSentAfterHeCame"},

	{"join: a shared read until it has landed", "G3", "share.go", "\tif r == nil {\n\t\tif h.wire--; h.wire == 0 {\n\t\t\tdelete(s.hot, key)\n\t\t}\n\t\treturn\n\t}\n\th.next = nil\n\tgo c.send(s, key, h, r)", "\tif r == nil || r.ok {\n\t\tif h.wire--; h.wire == 0 {\n\t\t\tdelete(s.hot, key)\n\t\t}\n\t\treturn\n\t}\n\tr.ok = true\n\tgo func() {\n\t\tc.send(s, key, h, r)\n\t\ts.mu.Lock()\n\t\th.next = nil\n\t\ts.mu.Unlock()\n\t}()", "G3SharedReadIsJoinedUntilItIsSent"},

	// The core: how many loads run.
	{"loads: any number of a key", "G2", "wait.go", "if f.starved = e.loads >= maxKeyLoads; f.starved {", "if false {", "G2ProcessRunsTwoLoadsOfAKeyAtMost"},
	{"loads: any number without a lease", "G2", "unleased.go", "\tif e.loads >= maxKeyLoads {\n\t\treturn false", "\tif false {\n\t\treturn false", "G2LoaderThatIgnoresItsContext"},
	{"loads: the third reader does not wait its turn", "G2", "unleased.go", "if f.starved = f.shard.entries[f.key].loads >= maxKeyLoads; f.starved {", "if false {", "G2ThirdReaderWhileTheServerIsDown"},
	{"loads: MaxUnleasedLoads is no limit", "G2", "unleased.go", "\tdefault:\n\t\treturn false\n\t}\n\tif c.loads", "\tdefault:\n\t\tgo func() { c.unleased <- struct{}{} }()\n\t}\n\tif c.loads", "G2UnleasedLoadsAreLimited"},
	{"loads: MaxLoads is no limit", "G2", "wait.go", "if c.loads != nil && !place {", "if false {", "G2MaxLoads"},
	{"loads: MaxLoads is for leased loads only", "G2", "unleased.go", "\tif c.loads != nil {\n\t\tselect {", "\tif false {\n\t\tselect {", "G2MaxLoadsCountsUnleasedLoads"},
	{"loads: the token comes back", "G1", "internal/protocol/scripts.go", "return Token(hex.EncodeToString(b[:]))", "return Token(hex.EncodeToString(make([]byte, len(b))))", "G2OneLoadAcrossProcesses"},
	{"loads: the wait bound is none", "G9", "unleased.go", "return w != leader && !w.deadline.After(now)", "return now.IsZero()", "G2WaitBound"},
	{"loads: a load ends with its caller", "G9", "load.go", "parent:   context.WithoutCancel(w.ctx)", "parent:   w.ctx", "G9CallersLeaveAtOnce"},
	{"loads: LoadTimeout is none", "G9", "load.go", "began.Add(c.opts.LoadTimeout)", "began.Add(time.Hour)", "G2LoaderThatIgnoresItsContext"},
	{"loads: rereads without end", "G4", "fill.go", "return w.rereads > maxRereads", "return false", "G4RereadIsBounded"},
	{"loads: never reread", "G4", "fill.go", "return w.rereads > maxRereads", "return true", "G4RejectedLoadIsReread"},

	// The core: how those who wait are woken.
	{"wake: who has subscribed waits for a message", "waiting", "wait.go", "if p.sleep > 0 && !f.watch(&p) {", "if p.sleep > 0 && (!f.watch(&p) || func() bool { p.sleep = time.Hour; return true }()) {", "WaitersLookOnceTheyAreSubscribed"},
	{"wake: nobody is woken", "waiting", "wake.go", "(*wake)() // a nudge, which never blocks", "_ = wake", "WaitersAreWoken"},
	{"wake: abilities are hidden by the bound", "waiting", "store.go", "s.wakeups.subscriber, _ = e.(driver.Subscriber)", "s.wakeups.subscriber, _ = s.evaler.(driver.Subscriber)", "WaitersLookOnceTheyAreSubscribed"},

	// The core: how leases, calls and reads end.
	{"end: no release without a fill", "G8", "fill.go", "c.release(f.key, f.keys, lease)\n\t\tf.finish(f.before, leader, o, p.encoded)\n\t\tev.Err", "f.finish(f.before, leader, o, p.encoded)\n\t\tev.Err", "G8LoadsWithoutAFillReleaseTheLease"},
	{"end: no release after a failed fill", "G8", "fill.go", "c.stats.failed(ErrorFill)\n\t\tc.release(f.key, f.keys, lease)", "c.stats.failed(ErrorFill)", "G9HungServerDuringAFill"},
	{"end: no release when all have left", "G8", "wait.go", "\tif lease != \"\" {", "\tif false {", "G8CallersThatLeftBeforeTheLoad"},
	{"end: no release of an unknown acquisition", "G8", "wait.go", "\tif lease != \"\" {", "\tif false {", "G8UnknownAcquisitionIsReleased"},
	{"end: a load that nobody waits for", "G8", "fill.go", "if leader == nil { // all have left while the lease was on its way", "if leader == nil { // all have left while the lease was on its way\n\t\tleader = &waiter[V]{key: f.key, ctx: context.Background(), load: func(context.Context) (v V, err error) { return v, err }}\n\t}\n\tif false {", "G8CallersThatLeftBeforeTheLoad"},
	{"end: a panic stays where it is", "G8", "flight.go", "\tcase o.panicked != nil:\n\t\tpanic(o.panicked)\n", "", "G8PanicInALoader"},
	{"end: Goexit is an error", "G8", "flight.go", "\tcase o.goexit:\n\t\truntime.Goexit()\n", "\tcase false:\n\t\truntime.Goexit()\n", "G8GoexitInALoader"},
	{"end: the first unknown attempt is forgotten", "G8", "call.go", "\tunknown := isUnknown(err)\n", "\tunknown := false\n", "G8UnknownAcquisitionIsReleased"},
	{"end: a caller waits for its result", "G9", "flight.go", "\tcase <-ctx.Done():\n\t\tc.leave(s, w)", "\tcase <-context.Background().Done():\n\t\tc.leave(s, w)", "G9CallersLeaveAtOnce"},
	{"end: one who has left is waited for", "G9", "flight.go", "\t\tif other == w {", "\t\tif other == w && f.leased {", "G9WaiterLeavesAtOnce"},
	{"end: a caller waits for its own load", "G9", "load.go", "\t\tcase <-ctx.Done():\n\t\t\tt.Stop()\n\t\t\treturn false\n", "", "G9CallersLeaveAtOnce"},
	{"end: a caller waits for its read or lease", "G9", "flight.go", "kind != unleasedFlight && c.hasTime(ctx):", "kind != unleasedFlight:", "G8CallersThatLeftBeforeTheLoad"},
	{"end: calls are not bounded", "G9", "call.go", "\tctx, cancel := context.WithTimeout(ctx, d)\n\tdefer cancel()\n\ttype", "\tctx, cancel := context.WithCancel(ctx)\n\tdefer cancel()\n\ttype", "G9HungServer/eval_only"},
	{"end: Invalidate says that all is well", "G7", "invalidate.go", "\tif failed.Err != nil {\n\t\treturn failed", "\tif false {\n\t\treturn failed", "G7ServerDown"},
	{"end: Invalidate tries once", "G7", "invalidate.go", "if isPermanent(err) ||", "if true ||", "G7LostReply"},
	{"end: Close leaves loads running", "close", "leasecache.go", "\tc.stopLoads()\n\t// What is left", "\t// What is left", "CloseReleasesEveryLease"},
	{"end: reads go on after Close", "close", "leasecache.go", "\tif c.work.closed.Load() {\n\t\treturn ErrClosed\n\t}\n", "", "CloseWaitsForLoads"},

	// The core: what is said of a result.
	{"result: the TTL counts from the reply", "G6", "get.go", "return max(ttl-time.Since(sent), 0)", "return max(ttl-0*time.Since(sent), 0)", "G6TTLCountsFromBeforeTheRequest"},
	{"result: a load's TTL counts from the fill's reply", "G6", "fill.go", "\to.ttl = ttl\n", "\to.ttl, o.sent = ttl, time.Now()\n", "G6TTLOfALoadCountsFromBeforeTheFill"},
	{"result: a rejected load looks cached", "G4", "fill.go", "\t\to.uncached = LeaseLost\n", "\t\to.ttl = time.Minute\n", "G1LoadBeforeAnInvalidationIsNotCached"},
	{"result: one value for all callers", "reading", "load.go", "shared.decoded = !encoded", "shared.decoded, shared.value = true, o.value", "OneCallerCannotChangeAnothersValue"},
	{"result: a value that begins with 0x00", "reading", "internal/protocol/record.go", "\t\treturn mark + payload\n", "\t\treturn payload\n", "Values"},
	{"result: a key that starts with a brace", "reading", "internal/protocol/keys.go", "case key[0] == '}':", "case false:", "Keys"},
}
