package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// commandsPer counts what the server runs for one operation, calls from scripts included.
func commandsPer(ctx context.Context, admin *redis.Client, s side) (sample, error) {
	before, err := commandCalls(ctx, admin)
	if err != nil {
		return sample{}, err
	}
	for range allocOps {
		if err := s.op(0); err != nil {
			return sample{}, err
		}
	}
	after, err := commandCalls(ctx, admin)
	if err != nil {
		return sample{}, err
	}
	total := 0
	for name, n := range after {
		if name != "info" && name != "ping" { // idle connections are tested with PING
			total += n - before[name]
		}
	}
	return sample{value: float64(total) / allocOps}, nil
}

// commandCalls returns how often the server has run each command.
func commandCalls(ctx context.Context, admin *redis.Client) (map[string]int, error) {
	info, err := admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, err
	}
	return parseCalls(info)
}

// parseCalls parses the section commandstats of INFO, whose lines read
// "cmdstat_get:calls=21,usec=175,usec_per_call=8.33,...".
func parseCalls(info string) (map[string]int, error) {
	counts := map[string]int{}
	for line := range strings.Lines(info) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(stats, ",")
		n, err := strconv.Atoi(calls)
		if err != nil {
			return nil, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		counts[name] = n
	}
	return counts, nil
}
