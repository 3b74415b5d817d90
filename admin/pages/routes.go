package pages

// page is one row: the operation in the table of actions.Roles, the method and the
// path as http.ServeMux wants them, and what answers. An error that it returns is
// shown as a page, with its hint.
type page struct {
	operation, pattern string
	do                 func(*visit) error
}

// table is every page.
func (p *Pages) table() []page {
	return []page{}
}
