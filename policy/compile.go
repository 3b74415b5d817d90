package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/internal/fault"
	"dispatch.example/dispatch/whitelist"
)

// Env is what rules refer to by name, and where they run.
type Env struct {
	Lists    *whitelist.Index
	Tables   map[string]*Prefixes // address tables by key
	Geo      *Geo                 // city and ASN databases of this replica; nil: none
	Replica  Replica
	Sessions *SessionKeys // nil: no session is read or sealed
}

// maxSalt is the longest salt in bytes.
const maxSalt = 256

// saltOtherwise is the key of Rules.Salts for the last step, and so no policy's.
const saltOtherwise = "otherwise"

// Compile turns rules into a Table. Its error lists everything wrong (fault.Invalid,
// problems with paths relative to the app, such as policies[3].when.in_list),
// among it what domain.Validate finds in the regions.
func Compile(r Rules, env Env) (*Table, error) {
	c := &compiler{rules: r, env: env, regions: map[string]int16{}, labels: map[string]bool{}}
	c.problems = domain.Validate(r.Regions)
	for i := range r.Regions {
		c.regions[r.Regions[i].Key] = int16(i)
	}
	if len(r.Regions) == 0 {
		c.addf("regions", "an app needs a region")
	}
	c.t = &Table{app: r.App, regions: slices.Clone(r.Regions), lists: env.Lists, geo: env.Geo, replica: env.Replica,
		epochs: maps.Clone(r.Epochs), labels: c.labels, by: c.bucketBy("bucket_by", r.BucketBy, ByDevice)}
	if c.t.lists == nil {
		c.t.lists = new(whitelist.Index)
	}
	c.origins()
	c.policies()
	c.otherwise()
	c.regionSalts()
	c.checkSalts()
	c.checkReach()
	if err := c.problems.Err("bad_rules", "the rules have mistakes"); err != nil {
		return nil, err
	}
	plan, err := domain.NewPlan(r.Regions)
	if err != nil {
		return nil, fmt.Errorf("plan failover: %w", err)
	}
	c.t.plan = plan
	c.t.index()
	c.t.sessions = env.Sessions.names(c.t)
	return c.t, nil
}

// compiler holds what one Compile knows and finds wrong.
type compiler struct {
	rules    Rules
	env      Env
	t        *Table
	problems fault.Problems
	regions  map[string]int16
	labels   map[string]bool // that an origin may give
}

func (c *compiler) addf(path, format string, args ...any) { c.problems.Addf(path, format, args...) }

// add adds an error at path, with its hint if it has one.
func (c *compiler) add(path string, err error) {
	problem := fault.Problem{Path: path, Detail: err.Error()}
	if e, ok := err.(*fault.Error); ok {
		problem.Detail, problem.Hint = e.Detail, e.Hint
	}
	c.problems = append(c.problems, problem)
}

// warn notes what is allowed and yet seldom meant.
func (c *compiler) warn(path, format string, args ...any) {
	c.t.warnings.Addf(path, format, args...)
}

func (c *compiler) region(path, key string) int16 {
	n, ok := c.regions[key]
	if !ok {
		c.addf(path, "region %q is unknown", key)
		return -1
	}
	return n
}

func (c *compiler) bucketBy(path string, by, otherwise BucketBy) BucketBy {
	switch by {
	case "":
		return otherwise
	case ByDevice, ByUser, ByDeviceThenUser, ByUserThenDevice:
		return by
	}
	c.addf(path, "%q is unknown; it is one of %s, %s, %s, %s", by, ByDevice, ByUser, ByDeviceThenUser, ByUserThenDevice)
	return otherwise
}

func (c *compiler) origins() {
	for key := range c.regions {
		c.labels[key] = true
	}
	for i, o := range c.rules.Origins {
		path := fmt.Sprintf("origins[%d]", i)
		forms := 0
		for _, set := range []bool{o.Hint, o.Replica, o.Table != "", o.GeoIP != nil} {
			if set {
				forms++
			}
		}
		if forms != 1 {
			c.addf(path, "say exactly one of hint, replica, table and geoip; %d are given", forms)
			continue
		}
		c.t.origins = append(c.t.origins, c.origin(path, o))
	}
}

func (c *compiler) origin(path string, o Origin) origin {
	switch {
	case o.Hint:
		return origin{source: fromHint}
	case o.Replica:
		return origin{source: fromReplica}
	case o.Table != "":
		table := c.env.Tables[o.Table]
		if table == nil {
			c.addf(path+".table", "table %q is unknown", o.Table)
			return origin{}
		}
		for _, label := range table.labels {
			c.labels[label] = true
		}
		return origin{source: fromTable, name: o.Table, table: table}
	}
	if len(o.GeoIP.Country)+len(o.GeoIP.Subdivision) == 0 {
		c.addf(path+".geoip", "maps nothing; write {country: {CN: sh}} or {subdivision: {SH: sh}}")
	}
	if !c.env.Geo.hasCity() {
		c.warn(path+".geoip", "this replica has no city database, so this origin never answers")
	}
	return origin{source: fromGeo,
		country: c.places(path+".geoip.country", o.GeoIP.Country, isCountry),
		parts:   c.places(path+".geoip.subdivision", o.GeoIP.Subdivision, isSubdivision)}
}

// places checks a map from ISO codes to regions and writes the codes in upper case.
func (c *compiler) places(path string, regions map[string]string, valid func(string) bool) map[string]string {
	out := make(map[string]string, len(regions))
	for _, code := range slices.Sorted(maps.Keys(regions)) {
		upper := strings.ToUpper(code)
		if !valid(upper) {
			c.addf(path+"."+code, "%q is no ISO 3166 code", code)
		}
		if _, twice := out[upper]; twice {
			c.addf(path+"."+code, "%s is already mapped in another case", upper)
		}
		c.region(path+"."+code, regions[code])
		out[upper] = regions[code]
	}
	return out
}

func (c *compiler) policies() {
	seen := map[string]int{}
	for i := range c.rules.Policies {
		p, path := &c.rules.Policies[i], fmt.Sprintf("policies[%d]", i)
		if err := domain.CheckKey(p.Key); err != nil {
			c.add(path+".key", err)
		}
		if first, taken := seen[domain.FoldKey(p.Key)]; taken {
			c.addf(path+".key", "policy %q looks like %q at policies[%d]", p.Key, c.rules.Policies[first].Key, first)
		} else {
			seen[domain.FoldKey(p.Key)] = i
		}
		if p.Key == saltOtherwise {
			c.addf(path+".key", "%q is the name of the last step; choose another", p.Key)
		}
		conds := c.when(path+".when", p.When)
		switch {
		case len(conds) == 0 && !p.MatchAll && p.When.empty():
			c.addf(path, "has no conditions; write match_all: true if it is for everybody")
		case p.MatchAll && !p.When.empty():
			c.addf(path+".match_all", "is only for a policy without conditions")
		}
		do := c.action(path+".then", p.Then, drawn{by: c.bucketBy(path+".bucket_by", p.BucketBy, c.t.by),
			salt: c.salt(p.Salt, p.Key, c.rules.App+"/"+p.Key)})
		c.t.rules = append(c.t.rules, rule{key: p.Key, late: conds, do: do})
	}
}

func (c *compiler) otherwise() {
	if c.rules.Otherwise.Share != nil {
		c.addf("otherwise.share", "is not allowed here, because nothing comes after; use region or split")
	}
	c.t.otherwise = c.action("otherwise", c.rules.Otherwise,
		drawn{by: c.t.by, salt: c.salt("", saltOtherwise, c.rules.App+"/"+saltOtherwise)})
}

// regionSalts are those that spread a failing region's users and choose endpoints.
func (c *compiler) regionSalts() {
	for i := range c.rules.Regions {
		key := c.rules.Regions[i].Key
		failover, endpoint := "failover/"+key, "endpoint/"+key
		c.t.failover = append(c.t.failover, newSalt(c.salt("", failover, "failover/"+c.rules.App+"/"+key)))
		c.t.only = append(c.t.only, only(&c.rules.Regions[i]))
		c.t.endpoint = append(c.t.endpoint, newSalt(c.salt("", endpoint, "endpoint/"+c.rules.App+"/"+key)))
	}
}

// only is the endpoint that serves alone in a region, -1 if there are more or none.
func only(r *domain.Region) int16 {
	found := int16(-1)
	for i := range r.Endpoints {
		if r.Endpoints[i].Serves() {
			if found >= 0 {
				return -1
			}
			found = int16(i)
		}
	}
	return found
}

// salt is the one that the document states, else the stored one, else the default.
func (c *compiler) salt(stated, key, byDefault string) string {
	if stated != "" {
		return stated
	}
	if stored, ok := c.rules.Salts[key]; ok {
		return stored
	}
	return byDefault
}

// checkSalts refuses unusable salts, and the salt of one step in another: both
// would draw the same buckets, and a split inside a share would send all of it
// one way. Policies may share a salt on purpose.
func (c *compiler) checkSalts() {
	users := map[string]string{}
	claim := func(path, salt string, alone bool) {
		switch {
		case salt == "" || len(salt) > maxSalt || !utf8.ValidString(salt) || strings.ContainsRune(salt, 0):
			c.addf(path, "salt %q is not 1 to %d bytes of UTF-8 without a zero byte", salt, maxSalt)
		case users[salt] != "" && alone:
			c.addf(path, "salt %q is already that of %s", salt, users[salt])
		default:
			users[salt] = path
		}
	}
	for i := range c.t.rules {
		claim(fmt.Sprintf("policies[%d].salt", i), c.t.rules[i].do.salt.text, false)
	}
	claim("otherwise", c.t.otherwise.salt.text, true)
	for i := range c.t.regions {
		claim(fmt.Sprintf("regions[%d], failover salt", i), c.t.failover[i].text, true)
		claim(fmt.Sprintf("regions[%d], endpoint salt", i), c.t.endpoint[i].text, true)
	}
}
