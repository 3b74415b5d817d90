package trace

import (
	"os"
	"testing"

	"dispatch.example/dispatch/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
