package discovery

// Dialect maps what one registry's teams write to coordinates. What it does not
// map is not guessed: the entry lacks a coordinate and goes to Rejected.
//
//	keys:   {environment: env, idc: region}
//	values: {env: {production: prod}, region: {hz: cn-hangzhou}}
//	absent: {cluster: production}
//	names:  ['^(?P<service>.+)-(?P<version>v[0-9]+)$']
type Dialect struct {
	// Keys map a key of the registry's metadata to cluster, region, env, version or weight.
	Keys map[string]string `yaml:"keys"`
	// Values map, for a coordinate, a value as written to ours. A coordinate that
	// has an entry here takes no other values.
	Values map[string]map[string]string `yaml:"values"`
	// Absent is the value of a coordinate for entries that do not have its key.
	Absent map[string]string `yaml:"absent"`
	// Names are regular expressions (RE2) with the groups service and version, and
	// optionally env, cluster, region; the first that matches splits a name.
	Names []string `yaml:"names"`
}
