package policy

import (
	"net/netip"

	"dispatch.example/dispatch/whitelist"
)

// walker is one walk: the request, what was found out about it so far, and the
// trace, which is nil on the hot path. It lives on the stack of walk. What costs
// a look-up is found when first asked for and then kept.
type walker struct {
	t     *Table
	req   *Request
	tr    *Trace
	notes Notes
	addr  netip.Addr // plainAddr of the request's

	known        facts
	deviceSearch whitelist.Search
	userSearch   whitelist.Search
	device       whitelist.Lists
	user         whitelist.Lists
	appVersion   Version
	versionOK    bool
	from         finding
	at           Place
	network      uint32
}

// facts are those that were looked up.
type facts uint16

const (
	knowDevice facts = 1 << iota
	knowUser
	knowVersion
	knowOrigin
	knowPlace
	knowASN
	soughtDevice
	soughtUser
)

// first says whether f was not asked for before.
func (w *walker) first(f facts) bool {
	if w.known&f != 0 {
		return false
	}
	w.known |= f
	return true
}

// seek begins to look for lists that hold the device or user id, so that the
// memory they are in is on its way while other things are found out.
func (w *walker) seek(of whitelist.Of) {
	switch {
	case of == whitelist.Device && w.first(soughtDevice):
		w.t.lists.Begin(&w.deviceSearch, of, w.req.Device)
	case of == whitelist.User && w.first(soughtUser):
		w.t.lists.Begin(&w.userSearch, of, w.req.User)
	}
}

// lists are all lists that hold the device or user id.
func (w *walker) lists(of whitelist.Of) *whitelist.Lists {
	if of == whitelist.User {
		if w.req.User == "" {
			w.notes |= UserAbsent
		}
		if w.first(knowUser) {
			w.seek(of)
			w.userSearch.End(&w.user)
		}
		return &w.user
	}
	if w.req.Device == "" {
		w.notes |= DeviceAbsent
	}
	if w.first(knowDevice) {
		w.seek(of)
		w.deviceSearch.End(&w.device)
	}
	return &w.device
}

func (w *walker) version() (*Version, bool) {
	if w.first(knowVersion) {
		w.versionOK = w.appVersion.parse(w.req.AppVersion)
	}
	return &w.appVersion, w.versionOK
}

func (w *walker) place() Place {
	if w.first(knowPlace) {
		w.at = w.t.geo.Place(w.addr)
	}
	return w.at
}

func (w *walker) asn() uint32 {
	if w.first(knowASN) {
		w.network = w.t.geo.ASN(w.addr)
	}
	return w.network
}

// id is the id that a share or split hashes; empty notes which are missing.
func (w *walker) id(by BucketBy) string {
	device, user := w.req.Device, w.req.User
	switch by {
	case ByUser:
		if user == "" {
			w.notes |= UserAbsent
		}
		return user
	case ByDeviceThenUser:
		if device == "" {
			w.notes |= DeviceAbsent
			return w.id(ByUser)
		}
	case ByUserThenDevice:
		if user != "" {
			return user
		}
		w.notes |= UserAbsent
	}
	if device == "" {
		w.notes |= DeviceAbsent
	}
	return device
}

// bucket is where the id falls under s; without one the address's prefix stands in.
func (w *walker) bucket(s *salt, id string) uint16 {
	if id != "" {
		return s.bucket(id)
	}
	if !w.addr.IsValid() {
		w.notes |= AddrAbsent
	}
	return s.bucketOfPrefix(w.addr)
}
