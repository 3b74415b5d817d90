package discovery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	nacosUnhealthy = 15 * time.Second // after the last beat
	nacosForgets   = 30 * time.Second
)

// nacosDouble speaks version 1 of Nacos' open API as servers of 1.4 and 2.x were
// recorded to do: ephemeral instances that live by beats, the protection threshold,
// services that keep persistent instances, logins. What no server can be brought to
// do is scripted.
type nacosDouble struct {
	fakeNet

	hosts      map[string]*doubleHost // by service key and address
	persistent map[string]bool        // service keys that take no ephemeral instances
	silent     bool                   // time passes without beats: nothing expires
	asked      []string               // method, path and service
	refuse     int                    // so many registrations are refused, as first ones may be
	says       func(service string) string
	broken     func(r *http.Request) (int, string) // status 0: works
	password   string                              // of the user nacos; empty: nobody logs in
	tokens     int                                 // logins so far
	void       int                                 // logins that are no longer valid
}

// doubleHost is what the double keeps of an instance.
type doubleHost struct {
	nacosHost
	ID      string `json:"instanceId"`
	Cluster string `json:"clusterName"`
	Service string `json:"serviceName"`
	Valid   bool   `json:"valid"`
	Kind    bool   `json:"ephemeral"`

	beat time.Time
	key  string // of its service
}

func newNacosDouble() *nacosDouble {
	return &nacosDouble{hosts: map[string]*doubleHost{}, persistent: map[string]bool{}}
}

// serving is a double on a port of loopback.
func (d *nacosDouble) serving(t testing.TB) (address string) {
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// ServeHTTP implements http.Handler.
func (d *nacosDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form, err := formOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r.Method+" "+r.URL.Path+" "+form.Get("serviceName"))
	status, text := 0, ""
	if d.broken != nil {
		status, text = d.broken(r)
	}
	if status == 0 {
		status, text = d.answer(r, form)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a caller that is gone needs no answer
}

// formOf reads a form wherever a client puts it: the official SDK sends the body of
// a PUT, and escapes nothing.
func formOf(r *http.Request) (url.Values, error) {
	form := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	for pair := range strings.SplitSeq(string(body), "&") {
		key, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(value); err == nil && key != "" {
			form.Set(key, plain)
		}
	}
	return form, nil
}

func (d *nacosDouble) answer(r *http.Request, form url.Values) (int, string) {
	path := strings.TrimPrefix(r.URL.Path, "/nacos")
	if strings.HasPrefix(path, "/v1/auth/") {
		if form.Get("username") != "nacos" || form.Get("password") != d.password {
			return http.StatusForbidden, "unknown user!"
		}
		d.tokens++
		return http.StatusOK, fmt.Sprintf(`{"accessToken":"token-%d","tokenTtl":18000,"globalAdmin":true}`, d.tokens)
	}
	token := cmp.Or(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), form.Get("accessToken"))
	if n, err := strconv.Atoi(strings.TrimPrefix(token, "token-")); d.password != "" && (err != nil || n <= d.void || n > d.tokens) {
		return http.StatusForbidden, "token invalid!"
	}
	switch r.Method + " " + path {
	case "GET /v1/ns/instance/list":
		return d.list(form)
	case "POST /v1/ns/instance":
		return d.register(form)
	case "PUT /v1/ns/instance/beat":
		return d.renew(form)
	case "DELETE /v1/ns/instance":
		delete(d.hosts, hostKey(form))
		return http.StatusOK, "ok"
	case "GET /v1/ns/service/list":
		return d.services(form)
	}
	return http.StatusNotFound, "no such path"
}

// serviceKey is namespace, group and name.
func serviceKey(form url.Values) string {
	group, name, grouped := strings.Cut(form.Get("serviceName"), "@@")
	if !grouped {
		group, name = cmp.Or(form.Get("groupName"), "DEFAULT_GROUP"), group
	}
	return cmp.Or(form.Get("namespaceId"), "public") + "##" + group + "@@" + name
}

func hostKey(form url.Values) string {
	return serviceKey(form) + "#" + form.Get("ip") + "#" + form.Get("port") + "#" + cmp.Or(form.Get("clusterName"), form.Get("cluster"), "DEFAULT")
}

func (d *nacosDouble) register(form url.Values) (int, string) {
	key := serviceKey(form)
	_, grouped, _ := strings.Cut(key, "##")
	if d.persistent[key] && form.Get("ephemeral") == "true" {
		return http.StatusBadRequest, "caused: errCode: 400, errMsg: Current service " + grouped + " is persistent service, can't register ephemeral instance. ;"
	}
	if d.refuse > 0 {
		d.refuse--
		return http.StatusBadRequest, "caused: errCode: 400, errMsg: service not found: " + grouped + ";"
	}
	port, err := strconv.Atoi(form.Get("port"))
	weight, bad := strconv.ParseFloat(cmp.Or(form.Get("weight"), "1"), 64)
	var metadata map[string]string
	if text := form.Get("metadata"); text != "" {
		if err := json.Unmarshal([]byte(text), &metadata); err != nil {
			return http.StatusBadRequest, "metadata: " + err.Error()
		}
	}
	if err != nil || bad != nil || form.Get("ip") == "" {
		return http.StatusBadRequest, "Param 'ip', 'port' or 'weight' is wrong"
	}
	enabled := cmp.Or(form.Get("enabled"), form.Get("enable"), "true") == "true"
	d.hosts[hostKey(form)] = &doubleHost{key: key, beat: time.Now(), Valid: true, Kind: true, Service: grouped,
		Cluster: cmp.Or(form.Get("clusterName"), "DEFAULT"), ID: hostKey(form),
		nacosHost: nacosHost{IP: form.Get("ip"), Port: port, Weight: &weight, Healthy: true, Enabled: &enabled, Metadata: metadata}}
	return http.StatusOK, "ok"
}

// renew knows both beats: the light one of newer clients, and that which says all
// and makes again what was forgotten.
func (d *nacosDouble) renew(form url.Values) (int, string) {
	d.expire()
	if beat := form.Get("beat"); beat != "" {
		var said struct {
			IP       string            `json:"ip"`
			Port     int               `json:"port"`
			Cluster  string            `json:"cluster"`
			Weight   float64           `json:"weight"`
			Metadata map[string]string `json:"metadata"`
		}
		if err := json.Unmarshal([]byte(beat), &said); err != nil {
			return http.StatusBadRequest, err.Error()
		}
		form.Set("ip", said.IP)
		form.Set("port", strconv.Itoa(said.Port))
		form.Set("clusterName", cmp.Or(said.Cluster, "DEFAULT"))
		if d.hosts[hostKey(form)] == nil {
			metadata, err := json.Marshal(said.Metadata)
			if err != nil {
				return http.StatusBadRequest, err.Error()
			}
			form.Set("metadata", string(metadata))
			form.Set("weight", fmt.Sprint(said.Weight))
			form.Set("ephemeral", "true")
			if status, text := d.register(form); status != http.StatusOK {
				return status, text
			}
		}
	}
	h := d.hosts[hostKey(form)]
	if h == nil {
		return http.StatusOK, `{"clientBeatInterval":5000,"code":20404,"lightBeatEnabled":true}`
	}
	h.beat, h.Healthy = time.Now(), true
	return http.StatusOK, `{"clientBeatInterval":5000,"code":10200,"lightBeatEnabled":true}`
}

// expire does what a server does every few seconds.
func (d *nacosDouble) expire() {
	for key, h := range d.hosts {
		if since := time.Since(h.beat); !d.silent && since >= nacosForgets {
			delete(d.hosts, key)
		} else if !d.silent && since >= nacosUnhealthy {
			h.Healthy = false
		}
	}
}

// list leaves out what is not enabled. When none is healthy, which is what the
// threshold of 0 means that services have by default, it calls all of them healthy.
func (d *nacosDouble) list(form url.Values) (int, string) {
	d.expire()
	key := serviceKey(form)
	if d.says != nil {
		if text := d.says(key); text != "" {
			return http.StatusOK, text
		}
	}
	hosts, healthy := []doubleHost{}, 0
	for _, name := range slices.Sorted(maps.Keys(d.hosts)) {
		h := *d.hosts[name]
		if h.key != key || !*h.Enabled {
			continue
		}
		if h.Healthy {
			healthy++
		}
		hosts = append(hosts, h)
	}
	threshold := len(hosts) > 0 && healthy == 0
	for i := range hosts {
		hosts[i].Healthy = hosts[i].Healthy || threshold
	}
	if form.Get("healthyOnly") == "true" {
		hosts = slices.DeleteFunc(hosts, func(h doubleHost) bool { return !h.Healthy })
	}
	_, name, _ := strings.Cut(key, "##")
	text, err := json.Marshal(map[string]any{"name": name, "groupName": form.Get("groupName"), "clusters": form.Get("clusters"), "cacheMillis": 10000,
		"hosts": hosts, "lastRefTime": time.Now().UnixMilli(), "checksum": "", "allIPs": false, "reachProtectionThreshold": threshold, "valid": true})
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	return http.StatusOK, string(text)
}

func (d *nacosDouble) services(form url.Values) (int, string) {
	page, _ := strconv.Atoi(form.Get("pageNo"))
	size, _ := strconv.Atoi(form.Get("pageSize"))
	prefix := cmp.Or(form.Get("namespaceId"), "public") + "##" + cmp.Or(form.Get("groupName"), "DEFAULT_GROUP") + "@@"
	found := map[string]bool{}
	for _, h := range d.hosts {
		if name, ours := strings.CutPrefix(h.key, prefix); ours {
			found[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(found))
	from := min(max(page-1, 0)*size, len(names))
	text, err := json.Marshal(map[string]any{"count": len(names), "doms": names[from:min(from+size, len(names))]})
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	return http.StatusOK, string(text)
}

// do changes the double.
func (d *nacosDouble) do(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// calls counts those whose text contains a part.
func (d *nacosDouble) calls(part string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, call := range d.asked {
		if strings.Contains(call, part) {
			n++
		}
	}
	return n
}

// put makes an instance as other teams do: with their metadata, and no beats.
func (d *nacosDouble) put(name, ip string, port int, metadata map[string]string) *doubleHost {
	d.mu.Lock()
	defer d.mu.Unlock()
	form := url.Values{"serviceName": {name}, "ip": {ip}, "port": {strconv.Itoa(port)}}
	h := &doubleHost{key: serviceKey(form), beat: time.Now(), Valid: true, Kind: true, Cluster: "DEFAULT", ID: hostKey(form),
		nacosHost: nacosHost{IP: ip, Port: port, Weight: new(1.0), Healthy: true, Enabled: new(true), Metadata: metadata}}
	d.hosts[hostKey(form)] = h
	return h
}

// inNacos is a test for a bubble of synctest, with a double and a source that asks it.
func inNacos(hosts string, test func(t *testing.T, d *nacosDouble, n *nacos)) func(*testing.T) {
	return func(t *testing.T) {
		d := newNacosDouble()
		d.start(":8848", d)
		defer d.close()
		options, err := parseNacos(hosts)
		if err != nil {
			t.Fatal(err)
		}
		n, err := newNacos(options, Options{Registry: d.registry}, d)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		test(t, d, n)
	}
}
