package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// evaler runs scripts through client. When bound is not nil, its calls end in
// that time, and client ends them by their context's deadline.
type evaler struct {
	client Client
	bound  *bound
}

// onceCmd is a script call. go-redis repeats every command whose reply is lost,
// unless it says that it must not be repeated.
//
// It is used by pointer, because mocks of go-redis reach for the embedded fields
// by reflection.
type onceCmd struct{ *redis.Cmd }

// NoRetry keeps go-redis from sending the command a second time.
func (*onceCmd) NoRetry() bool { return true }

// Eval implements [driver.Evaler].
func (e evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	// One bound for both attempts.
	call := e.bound.context(ctx, new(callContext))
	v, err := e.eval(ctx, call, "evalsha", s.SHA1(), keys, args)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" {
		// The server does not know the digest, so it has run nothing.
		v, err = e.eval(ctx, call, "eval", s.Source(), keys, args)
	}
	if err != nil {
		return driver.Reply{}, err
	}
	return reply(v)
}

// eval sends one command and returns its reply as go-redis reports it. ctx is
// the caller's context, call the one to send with.
func (e evaler) eval(ctx, call context.Context, name, script string, keys, args []string) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	cmd := evalCmd(call, name, script, keys, args)
	err := e.client.Process(call, cmd)
	if err == nil {
		err = cmd.Err()
	}
	switch {
	case err == nil:
		return cmd.Val(), nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	}
	e.reload(call, err)
	return nil, callError(ctx, call, err)
}

func evalCmd(ctx context.Context, name, script string, keys, args []string) *onceCmd {
	// Strings and nothing else, which go-redis sends as they are.
	cmdArgs := make([]any, 0, 3+len(keys)+len(args))
	cmdArgs = append(cmdArgs, name, script, len(keys))
	for _, k := range keys {
		cmdArgs = append(cmdArgs, k)
	}
	for _, a := range args {
		cmdArgs = append(cmdArgs, a)
	}
	cmd := &onceCmd{redis.NewCmd(ctx, cmdArgs...)}
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	// Without a step count a cluster client asks the servers for one first, for
	// up to 5 s whatever the context says.
	cmd.SetStepCount(1)
	return cmd
}
