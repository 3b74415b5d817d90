package testenv

import (
	"context"
	"testing"
	"time"
)

func TestPairAcknowledgesWhatTheReplicaHas(t *testing.T) {
	pair := MariaDBPair(t)
	db := open(t, pair.DSN())
	exec := func(query string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, query)
		return err
	}
	for _, query := range []string{"CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)"} {
		if err := exec(query); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, pair.ReplicaDSN()).Exec("INSERT INTO t VALUES (9)"); err == nil {
		t.Error("the replica takes writes")
	}
	pair.Cut()
	if err := exec("INSERT INTO t VALUES (2)"); err == nil {
		t.Error("a write was acknowledged that the replica does not have")
	}
	pair.Kill()
	pair.Promote()
	var sum int
	if err := db.QueryRow("SELECT SUM(a) FROM t").Scan(&sum); err != nil || sum != 1 {
		t.Errorf("sum on the new primary = %d, %v, want 1", sum, err)
	}
	if err := exec("INSERT INTO t VALUES (3)"); err != nil {
		t.Errorf("write to the new primary: %v", err)
	}
}

func TestPointMovesNewConnectionsOnly(t *testing.T) {
	pair := MariaDBPair(t)
	old, err := open(t, pair.DSN()).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	pair.Demote()
	pair.Promote()
	var id int
	if err := old.QueryRowContext(t.Context(), "SELECT @@server_id").Scan(&id); err != nil || id != 1 {
		t.Errorf("open connection: server %d, %v, want 1", id, err)
	}
	if err := open(t, pair.DSN()).QueryRow("SELECT @@server_id").Scan(&id); err != nil || id != 2 {
		t.Errorf("new connection: server %d, %v, want 2", id, err)
	}
}
