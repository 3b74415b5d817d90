package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"dispatch.example/dispatch/admin/actions"
)

// lookUps watches how often people look up the routes of others. Who asked stands in
// the log and the audit trail, whom they asked for in neither.
type lookUps struct {
	log    *slog.Logger
	total  *prometheus.CounterVec
	alerts prometheus.Counter
}

func newLookUps(reg prometheus.Registerer, log *slog.Logger) (*lookUps, error) {
	l := &lookUps{log: log,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dispatch_lookups_total",
			Help: "Look-ups of a person's route or list, answered, or refused because their author had made too many."}, []string{"result"}),
		alerts: prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatch_lookup_alerts_total",
			Help: "People who made all the look-ups that an hour has room for."}),
	}
	for _, result := range []string{"answered", "refused"} {
		l.total.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{l.total, l.alerts} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// note counts a look-up, and says once an hour who makes so many.
func (l *lookUps) note(u actions.LookUp) {
	if u.Refused {
		l.total.WithLabelValues("refused").Inc()
		return
	}
	l.total.WithLabelValues("answered").Inc()
	if u.Alert {
		l.alerts.Inc()
		l.log.WarnContext(context.Background(), "one person looked up many people within an hour", "by", u.By, "look_ups", actions.LookUpsAnHour,
			"try", "ask what for; GET /api/v1/audit?actor=… has each of them, ids as keyed hashes")
	}
}
