package client_test

import (
	"testing"
	"time"

	"dispatch.example/dispatch/client"
)

func BenchmarkRouteWithinTTL(b *testing.B) {
	c := newClient(b, both(says(signedAt(time.Now(), claims()))).options())
	c.Route(background())
	b.ReportAllocs()
	for b.Loop() {
		c.Route(background())
	}
}

func BenchmarkJudgeAnswer(b *testing.B) {
	c := newClient(b, options())
	body := text(signedBy("k1", claims()))
	now := time.Unix(epoch, 0)
	b.ReportAllocs()
	for b.Loop() {
		if v := c.Judge(body, now, map[string]client.Mark{}, ""); v.Why != "" {
			b.Fatal(v.Why)
		}
	}
}
