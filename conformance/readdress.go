package conformance

import (
	"net"
	"strconv"
	"strings"

	"github.com/leasecache/leasecache/internal/resp"
)

// readdress returns the bytes of a reply in which a node of a cluster tells of
// others, with the proxy's addresses in place of theirs; of any other reply, raw.
func (p *Proxy) readdress(command []string, v resp.Value, raw []byte) []byte {
	if err := v.Err(); err != nil {
		// MOVED slot host:port, or ASK
		fields := strings.Fields(v.Str)
		if len(fields) != 3 || fields[0] != "MOVED" && fields[0] != "ASK" {
			return raw
		}
		v.Str = fields[0] + " " + fields[1] + " " + p.Route(fields[2])
		return resp.AppendValue(nil, v)
	}
	if len(command) < 2 || !strings.EqualFold(command[0], "CLUSTER") || !strings.EqualFold(command[1], "SLOTS") {
		return raw
	}
	for _, slots := range v.List {
		if len(slots.List) < 3 {
			continue
		}
		for _, node := range slots.List[2:] { // first slot, last slot, nodes
			if len(node.List) < 2 {
				continue
			}
			addr := net.JoinHostPort(node.List[0].Str, strconv.FormatInt(node.List[1].Int, 10))
			host, port, err := net.SplitHostPort(p.Route(addr))
			if err != nil {
				continue
			}
			n, _ := strconv.ParseInt(port, 10, 64)
			node.List[0] = resp.Value{Kind: resp.BulkString, Str: host}
			node.List[1] = resp.Value{Kind: resp.Integer, Int: n}
		}
	}
	return resp.AppendValue(nil, v)
}
