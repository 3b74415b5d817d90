// Package policy decides which region a request's whole session will use.
//
// Compile turns one app's Rules into a Table, and lists every mistake in them
// at once. A Table is immutable: any number of goroutines call Decide on it
// without a lock, and Decide reads no clock, allocates nothing and cannot fail.
// The package owns no goroutine.
//
// A decision is a pure function of the Rules (a release), the Request (with its
// time), the Replica's coordinates and the bytes of the address databases.
//
//	Rules ── Compile(Env) ──► Table ── Decide(Request) ──► Decision (indexes into the rules)
//	                              └─── Explain(Request) ─► the same Decision, and a Trace
//
// Decide and Explain are one walk: session, policies in order, otherwise, then
// failover and endpoint. Explain passes a Trace and Decide passes nil. DESIGN.md
// describes the walk, the index over policies and the invariants.
//
// What cannot be read never fails a request. An absent or unreadable value makes
// its condition false, also under not, and leaves a bit in Decision.Notes. An
// unreadable session token is no session. A request without the id that a share
// or split needs is passed on or placed by its address prefix. What nobody can
// serve goes to the app's fallback, as Region -1.
//
// Beside the walk stand its parts, each usable alone: Bucket (the only use of
// XXH64), Version and Range, Prefixes (address tables), Geo (city and ASN
// databases) and SessionKeys (the seal of session tokens).
package policy
