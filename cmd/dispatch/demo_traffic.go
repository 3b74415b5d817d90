package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"
)

const (
	// demoRate is requests a second: enough for a chart that moves, and less than one
	// hundredth of a processor.
	demoRate = 20
	// demoDevices is how many devices ask, each about every two minutes.
	demoDevices = 2400
	// demoSeed makes the same devices at every start.
	demoSeed = 20260101
	// demoKeeps is how often a device still has its session, of 100 times; else its
	// app has started anew.
	demoKeeps = 70
	// demoTimeout bounds one request.
	demoTimeout = 2 * time.Second
	// demoAnswer bounds what is read of an answer.
	demoAnswer = 64 << 10
)

// demoPeer is where the demo's apps come from: loopback, and not where a person's do.
var demoPeer = netip.MustParseAddr("127.0.0.2")

// demoTraffic is a population of devices that ask for their domain as apps do. None
// of them exists: names are numbers, and no client has such an address.
type demoTraffic struct {
	url     string
	client  *http.Client
	random  *rand.Rand
	devices []demoDevice
}

// demoDevice is one device with its app.
type demoDevice struct {
	app     string
	header  http.Header
	query   string
	session string // of the last answer
}

func newDemoTraffic(url string) *demoTraffic {
	// Machines that have only 127.0.0.1 on loopback send from there, and are believed less.
	dialer := &net.Dialer{Timeout: demoTimeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(demoPeer, 0))}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return (&net.Dialer{Timeout: demoTimeout}).DialContext(ctx, network, addr)
		}
		return conn, nil
	}
	t := &demoTraffic{url: url, random: rand.New(rand.NewPCG(demoSeed, 0)),
		client: &http.Client{Timeout: demoTimeout, Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1, DisableCompression: true}}}
	for n := range demoDevices {
		t.devices = append(t.devices, t.device(n))
	}
	return t
}

// device makes up device number n. Together the devices meet every policy of
// examples/mobile-bank.yaml, but for those that need an address database.
func (t *demoTraffic) device(n int) demoDevice {
	of := func(names ...string) string { return names[t.random.IntN(len(names))] }
	h := http.Header{}
	h.Set("User-Agent", "dispatch-demo")
	h.Set("X-Device-Id", fmt.Sprintf("demo-device-%04d", n))
	h.Set("X-Forwarded-For", t.address())
	if t.random.IntN(6) == 0 {
		d := demoDevice{app: "corporate", header: h, query: "app=corporate"}
		h.Set("X-User-Id", fmt.Sprintf("demo-company-%03d", t.random.IntN(300)))
		h.Set("X-Platform", "windows")
		if t.random.IntN(8) == 0 {
			d.query += "&attr.purpose=payroll"
		}
		return d
	}
	if n < 20 { // the staff on the list, on many devices that say the same id
		h.Set("X-Device-Id", of("d-1001", "d-1002"))
	}
	h.Set("X-Platform", of("ios", "ios", "android", "android", "android", "harmony"))
	h.Set("X-App-Version", of("9.8.4", "10.0.2", "10.1.0", "10.2.0", "10.2.1", "10.2.1"))
	h.Set("X-Channel", of("appstore", "vendor", "web"))
	h.Set("X-Carrier", of("carrier-a", "carrier-b", "carrier-c"))
	h.Set("X-Locale", of("zh-CN", "zh-CN", "zh-CN", "en-US"))
	if t.random.IntN(10) == 0 {
		h.Set("X-Origin-Region", of("sh", "hf"))
	}
	return demoDevice{app: "mobile", header: h, query: "app=mobile"}
}

// address is one that no client has, of the ranges for benchmarks and documentation.
// The table of the example places the first in Shanghai and the second in Hefei, and
// knows nothing of the third.
func (t *demoTraffic) address() string {
	b := [...][2]byte{{198, 18}, {198, 18}, {198, 19}, {192, 0}, {192, 0}}[t.random.IntN(5)]
	return netip.AddrFrom4([4]byte{b[0], b[1], 2, byte(1 + t.random.IntN(254))}).String()
}

// run asks until ctx ends. An answer that fails is asked for again by the next device.
func (t *demoTraffic) run(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	tick := time.NewTicker(time.Second / demoRate)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = t.ask(ctx, &t.devices[t.random.IntN(len(t.devices))]) // before the first release there is no answer
		case <-ctx.Done():
			return nil
		}
	}
}

// ask is one request of a device, which keeps the session that it gets.
func (t *demoTraffic) ask(ctx context.Context, d *demoDevice) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/route?"+d.query, nil)
	if err != nil {
		return err
	}
	req.Header = d.header.Clone()
	if d.session != "" && t.random.IntN(100) < demoKeeps {
		req.Header.Set("X-Session-Token", d.session)
	}
	res, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct{ Session string }
	data, err := io.ReadAll(io.LimitReader(res.Body, demoAnswer))
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("the demo's app %s got %s: %w", d.app, res.Status, err)
	}
	d.session = answer.Session
	return nil
}
