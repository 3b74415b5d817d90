package policy

import (
	"time"

	"dispatch.example/dispatch/domain"
)

// BucketBy says which id a share or split hashes.
type BucketBy string

// The ways to choose the id.
const (
	ByDevice         BucketBy = "device"
	ByUser           BucketBy = "user"
	ByDeviceThenUser BucketBy = "device_then_user"
	ByUserThenDevice BucketBy = "user_then_device"
)

// Rules is everything that decides for one app, as people wrote it plus the
// operational state beside it. Compile turns it into a Table.
type Rules struct {
	App       string
	BucketBy  BucketBy // default ByDevice
	Regions   []domain.Region
	Origins   []Origin
	Policies  []Policy
	Otherwise Action
	Epochs    map[string]uint32 // by policy key; raising one voids the tokens of that policy alone
	Salts     map[string]string // stored salts: by policy key, "otherwise", "failover/REGION", "endpoint/REGION"; absent: the default
}

// Policy is one ordered rule: when all conditions hold, then act.
type Policy struct {
	Key      string   `json:"key"`
	Name     string   `json:"name,omitempty"`
	MatchAll bool     `json:"match_all,omitempty"` // required, and only allowed, when When is empty
	When     When     `json:"when,omitzero"`
	BucketBy BucketBy `json:"bucket_by,omitempty"` // default: the app's
	Salt     string   `json:"salt,omitempty"`      // default: the stored one, else APP/POLICY
	Then     Action   `json:"then"`
}

// Action is exactly one of: a region, a share of the requests to a region with
// the rest going on to the next policy, or a split over regions.
type Action struct {
	Region string  `json:"region,omitempty"`
	Share  *Share  `json:"share,omitempty"`
	Split  []Share `json:"split,omitempty"` // must cover Whole exactly
}

// Share is a part of the buckets: the first Of (in a split: the next Of), the
// closed intervals written in Buckets, which an edit leaves as they are, or the
// first of a Ramp, more with time.
type Share struct {
	Region  string   `json:"region"`
	Of      *int     `json:"of,omitempty"`
	Buckets [][2]int `json:"buckets,omitempty"`
	Ramp    *Ramp    `json:"ramp,omitempty"` // not in a split
}

// When holds conditions; all that are written must hold. Those written inside
// Not must each fail. A value that is absent or cannot be read makes its
// condition false, also inside Not; only a list that an absent id is not in
// holds inside Not.
type When struct {
	InList          Strings            `json:"in_list,omitempty"`           // keys of lists; any of them
	Platform        Strings            `json:"platform,omitempty"`          // this and the next three ignore ASCII case
	Channel         Strings            `json:"channel,omitempty"`           //
	Carrier         Strings            `json:"carrier,omitempty"`           //
	Locale          Strings            `json:"locale,omitempty"`            // whole tags; zh_CN is zh-CN
	Origin          Strings            `json:"origin,omitempty"`            // see Rules.Origins
	RegionOfReplica Strings            `json:"region_of_replica,omitempty"` // where the answering process stands
	AppVersion      string             `json:"app_version,omitempty"`       // see ParseRange
	CIDR            Strings            `json:"cidr,omitempty"`              // prefixes or addresses
	Country         Strings            `json:"country,omitempty"`           // ISO 3166-1: CN
	Subdivision     Strings            `json:"subdivision,omitempty"`       // ISO 3166-2: CN-SH, or SH in any country
	ASN             []uint32           `json:"asn,omitempty"`               //
	Between         []time.Time        `json:"between,omitempty"`           // two instants with zone: [from, to)
	Attr            map[string]Strings `json:"attr,omitempty"`              // exact values by name
	HasDevice       *bool              `json:"has_device,omitempty"`        //
	HasUser         *bool              `json:"has_user,omitempty"`          //
	Not             *When              `json:"not,omitempty"`               // one level
}

// Strings is a list of strings. A document may write a list of one as its bare
// string; it is always written back as a list.
type Strings []string

// Origin is one way to find the region a request comes from: exactly one of
// its fields is set. In a document the bare words hint and replica are allowed.
type Origin struct {
	Hint    bool   `json:"hint,omitempty"`
	Replica bool   `json:"replica,omitempty"`
	Table   string `json:"table,omitempty"`
	GeoIP   *GeoIP `json:"geoip,omitempty"`
}

// GeoIP maps what the city database says to a region's key: first the
// subdivision (CN-SH, or SH in any country), then the country.
type GeoIP struct {
	Country     map[string]string `json:"country,omitempty"`
	Subdivision map[string]string `json:"subdivision,omitempty"`
}
