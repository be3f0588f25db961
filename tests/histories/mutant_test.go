//go:build mutants

package histories

import _ "github.com/leasecache/leasecache/tests/mutants/script"
