package driver

import "context"

// Batcher is an optional ability: calls that share round trips. Without it,
// package leasecache sends the calls of a batch each by itself, a few at a time.
//
// EvalBatch runs each call as [Evaler.Eval] would, and returns their results in
// the order of the calls, one for each. The rules of Eval hold for each call by
// itself: it is sent at most once, except once more by source after a NOSCRIPT
// reply to it, and not again because another one failed. An error of one call is
// its own result, and neither ends the others nor changes what is reported of
// them. EvalBatch returns when all have ended; what bounds a call, ctx's deadline
// and [Bounder], bounds all of them together.
//
// The keys of one call share a hash tag. Those of different calls need not, so
// in a cluster a batch may have to go to several nodes. The calls may run in any
// order, also beside each other, and others' calls between them. They are some
// hundreds at most, with about a megabyte of arguments, so that a batch fits into
// buffers; a call with longer ones is the last of its batch.
type Batcher interface {
	EvalBatch(ctx context.Context, calls []Call) []Result
}

// Call is a script with its keys and arguments.
type Call struct {
	Script     *Script
	Keys, Args []string
}

// Result is what became of one call of a batch: what [Evaler.Eval] returns.
type Result struct {
	Reply Reply
	Err   error
}

// BatchGetter is an optional ability: plain GETs that share round trips. The
// rules of [Getter] and of [Batcher] hold. Without it, package leasecache reads
// the keys of a batch by scripts if there is a Batcher, or else one by one.
type BatchGetter interface {
	GetBatch(ctx context.Context, keys []string) []GetResult
}

// GetResult is what became of one GET of a batch: what [Getter.Get] returns.
type GetResult struct {
	Value string
	OK    bool
	Err   error
}
