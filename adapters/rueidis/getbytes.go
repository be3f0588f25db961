package rueidis

import "context"

// GetBytes implements [driver.BytesGetter]. The client makes the bytes for this
// reply, and keeps only replies to DoCache.
func (e full) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	m, err := e.get(ctx, key)
	if err != nil || m.IsNil() {
		return nil, false, err
	}
	v, err := m.AsBytes()
	return v, err == nil, err
}
