package pages

// home is the overview.
func (v *visit) home() error { return v.show("home", nil) }
