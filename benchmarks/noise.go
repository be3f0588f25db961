package main

// noiseProbes compare a GET with the same GET: what the figures differ from 1 by is what any other may be off by.
func (b *bench) noiseProbes() ([]probe, error) {
	return []probe{
		b.latency("aa/"+b.name+"/latency_ratio", bar{}, b.get(), b.get()),
		b.throughput("aa/"+b.name+"/throughput_ratio", bar{}, b.get(), b.get()),
	}, nil
}
