package main

// ofPages are of what browsers get.
func ofPages() []Switch {
	return []Switch{
		{"TestSEC11NothingTypedRuns", "e2e/browser", "admin/pages/funcs.go",
			`"t":       say,`, `"t":       func(id string, pairs ...any) template.HTML { return template.HTML(say(id, pairs...)) },`},
		{"TestSEC12APageInAFrameIsRefused", "e2e/browser", "admin/pages/serve.go",
			"frame-ancestors 'none'\"", "frame-ancestors *\""},
		{"TestSEC11TextsStayTexts", "admin/pages", "admin/pages/funcs.go",
			`"t":       say,`, `"t":       func(id string, pairs ...any) template.HTML { return template.HTML(say(id, pairs...)) },`},
		{"TestSEC12NobodyFramesThePages", "admin/pages", "admin/pages/serve.go",
			`base-uri 'none'; frame-ancestors 'none'"`, `base-uri 'none'"`},
	}
}
