package glide

import (
	"context"
	"strings"
	"time"

	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"
)

type clusterClient = Client[pipeline.ClusterBatch, pipeline.ClusterBatchOptions]

// cluster sends a command by the slot of its keys. glide follows a redirection,
// and tries nothing a second time unless the options say so.
type cluster struct{ c clusterClient }

func (s cluster) send(ctx context.Context, keys, command []string, timeout time.Duration) ([]any, error) {
	b := pipeline.NewClusterBatch(false).CustomCommand(command)
	o := pipeline.NewClusterBatchOptions()
	if len(keys) > 0 {
		o.WithRoute(config.NewSlotIdRoute(config.SlotTypePrimary, slot(keys[0])))
	}
	if timeout > 0 {
		o.WithTimeout(timeout)
	}
	return s.c.ExecWithOptions(context.WithoutCancel(ctx), *b, false, *o)
}

// slot returns the hash slot of a key, as the specification of the cluster says:
// the CRC16 of its hash tag, or of all of it.
func slot(key string) int32 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int32(crc % 16384)
}
