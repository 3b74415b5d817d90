package pages

// page is one row: the operation in the table of actions.Roles, the method and the
// path as http.ServeMux wants them, and what answers. An error that it returns is
// shown as a page, with its hint. Without an operation it is for everybody, also for
// who has not signed in.
type page struct {
	operation, pattern string
	do                 func(*visit) error
}

// table is every page.
func (p *Pages) table() []page {
	return []page{
		{"show-app", "GET /{$}", (*visit).home},
		{"show-app", "GET /emergency", (*visit).emergency},
		{"emergency", "POST /emergency", (*visit).act},
		{"show-fleet", "GET /events/bar", (*visit).barEvents},
		{"show-fleet", "GET /events/release/{n}", (*visit).releaseEvents},
	}
}
