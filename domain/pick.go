package domain

// buckets is how many buckets a choice is spread over; they are numbered 0 to buckets-1.
const buckets = 10_000

// Pick chooses the endpoint of r that serves a bucket, by weight among the
// serving ones in the order of the document. Every bucket gets exactly one
// endpoint, and an endpoint's part differs from its exact share by less than
// one bucket. Weight 0 is never chosen, unless every serving endpoint has
// weight 0: then they share equally, because a region that serves must answer.
// It is false when no endpoint serves. It allocates nothing.
func (r *Region) Pick(bucket uint16) (endpoint int, ok bool) {
	total, serving := 0, 0
	for i := range r.Endpoints {
		if e := &r.Endpoints[i]; e.Serves() {
			total += e.share()
			serving++
		}
	}
	if serving == 0 {
		return 0, false
	}
	equal := total == 0
	if equal {
		total = serving
	}
	left := point(bucket, total)
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		if !e.Serves() {
			continue
		}
		part := 1
		if !equal {
			part = e.share()
		}
		if left < part {
			return i, true
		}
		left -= part
	}
	return 0, false // unreachable: left starts below the sum of all parts
}

// point maps a bucket evenly onto 0 to total-1.
func point(bucket uint16, total int) int {
	return int(bucket%buckets) * total / buckets
}
