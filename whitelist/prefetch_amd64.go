package whitelist

// prefetch asks for the cache line of p and does not wait. Go has no other way:
// a plain load holds up all that comes after it.
//
//go:noescape
func prefetch(p *byte)
