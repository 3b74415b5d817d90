package route

// Keys are hashed by FNV-1a with a finaliser: it must be the same in every process
// and for all time (hash/maphash is not), must not allocate (hash/fnv does), and
// need not withstand anybody, because keys choose between versions that all may see.

const (
	fnvOffset = 14_695_981_039_346_656_037
	fnvPrime  = 1_099_511_628_211
)

func fnv(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * fnvPrime
	}
	return hash
}

// hashTexts hashes several texts; a and bc are not ab and c.
func hashTexts(texts ...string) uint64 {
	hash := uint64(fnvOffset)
	for _, text := range texts {
		hash = fnv(hash, text) * fnvPrime // as for a byte 0 after it
	}
	return hash
}

// keyPoint is where a key stands on the line that a rule divides between its
// versions. FNV leaves the upper bits of short keys alike; the finaliser, that of
// MurmurHash3, spreads them.
func keyPoint(salt uint64, key string) uint64 {
	h := fnv(salt, key)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
