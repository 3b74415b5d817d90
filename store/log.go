package store

import (
	"context"
	"log/slog"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// slowStatement is when a statement is worth a line in the log. A whole import
// batch takes about 100 ms.
const slowStatement = time.Second

func (s *Store) gormConfig() *gorm.Config {
	return &gorm.Config{
		Logger:                   slowLog{s.log},
		SkipDefaultTransaction:   true, // write and view open their own
		DisableNestedTransaction: true,
		DisableAutomaticPing:     true, // opening pings with the caller's context
	}
}

// slowLog lets gorm log slow statements and nothing else: errors are returned.
// Values never reach the log.
type slowLog struct{ log *slog.Logger }

// LogMode is without effect; the level is the slog handler's.
func (l slowLog) LogMode(logger.LogLevel) logger.Interface { return l }

// Info drops the message.
func (l slowLog) Info(context.Context, string, ...any) {}

// Warn drops the message.
func (l slowLog) Warn(context.Context, string, ...any) {}

// Error drops the message: the error is returned as well.
func (l slowLog) Error(context.Context, string, ...any) {}

// Trace logs a statement that took long.
func (l slowLog) Trace(ctx context.Context, begin time.Time, fc func() (string, int64), _ error) {
	if took := time.Since(begin); took >= slowStatement {
		text, rows := fc()
		l.log.WarnContext(ctx, "slow statement", "took", took, "rows", rows, "sql", text)
	}
}

// ParamsFilter keeps the placeholders in the logged text.
func (l slowLog) ParamsFilter(_ context.Context, text string, _ ...any) (string, []any) {
	return text, nil
}
