package main

// hotKeyProbes compare goroutines that read one key, and share what is on its way, with as many that each send a GET.
func (b *bench) hotKeyProbes() ([]probe, error) {
	return []probe{b.throughput("hotkey/"+b.name+"/ratio", b.hotKeyBar, b.hit(b.shared), b.get())}, nil
}
