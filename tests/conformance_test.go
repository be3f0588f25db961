package tests

import (
	"fmt"
	"testing"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/servertest"
)

func TestEveryDriverConformsOnEveryServer(t *testing.T) {
	for _, spec := range servertest.Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			s := servertest.Start(t, spec)
			for _, d := range drivers {
				t.Run(d.name, func(t *testing.T) {
					conformance.Run(t, conformance.Harness{
						Driver:      d.name,
						Server:      fmt.Sprintf("%s-%s standalone", s.Vendor, s.Version),
						Dial:        dialer(s.Addr),
						Open:        d.open,
						ClientError: d.own,
						Lacks:       d.lacks,
					})
				})
			}
		})
	}
}
