package export

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	xds "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// checked is a message of Envoy that knows its own rules.
type checked interface {
	proto.Message
	ValidateAll() error
}

// resource adds a file with one resource.
func (e *Export) resource(m Mesh, name string, one checked) error {
	return resources(e, m, name, []checked{one})
}

// resources adds a file that Envoy reads as an answer of its control plane: it
// follows the file, and takes it whole or not at all.
func resources[M checked](e *Export, m Mesh, name string, list []M) error {
	answer := &xds.DiscoveryResponse{VersionInfo: strconv.FormatUint(m.Number, 10)}
	for _, one := range list {
		if err := one.ValidateAll(); err != nil {
			return fmt.Errorf("check %s for Envoy: %w", name, err)
		}
		packed, err := anypb.New(one)
		if err != nil {
			return fmt.Errorf("pack %s for Envoy: %w", name, err)
		}
		answer.Resources = append(answer.Resources, packed)
	}
	if err := answer.ValidateAll(); err != nil {
		return fmt.Errorf("check %s for Envoy: %w", name, err)
	}
	text, err := yamlOf(answer)
	if err != nil {
		return fmt.Errorf("write %s for Envoy: %w", name, err)
	}
	e.Files = append(e.Files, File{Name: name, Text: e.head(m) + text})
	return nil
}

// head are the first lines of a file.
func (e *Export) head(m Mesh) string {
	text := fmt.Sprintf("# Rules of %s, release %d, and the instances of one moment, for Envoy.\n"+
		"# Make it anew when rules are published and when instances come or go, and move it into\n"+
		"# place, clusters first: Envoy follows a file that is replaced. With a control plane of your\n"+
		"# own, give each cluster `type: EDS` and an `eds_cluster_config`, and serve its\n"+
		"# load_assignment there.\n"+
		"#\n# What Envoy does otherwise than callers, and what is left out:\n", m.Region, m.Number)
	for _, note := range e.Notes {
		text += "#  - " + strings.Map(oneLine, note) + "\n"
	}
	return text
}

// oneLine keeps ids of registries inside a comment: what YAML takes for the end of a
// line becomes a blank.
func oneLine(r rune) rune {
	if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
		return ' '
	}
	return r
}

// yamlOf writes a message with the order of its fields. protojson adds blanks by
// chance, so that nobody relies on its bytes; they go here.
func yamlOf(m proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil { // JSON is YAML
		return "", err
	}
	unquote(&tree)
	var out bytes.Buffer
	w := yaml.NewEncoder(&out)
	w.SetIndent(2)
	if err := w.Encode(&tree); err != nil {
		return "", err
	}
	return out.String(), w.Close()
}

// unquote takes JSON's brackets and quotes away. The encoder quotes what needs it.
func unquote(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		unquote(child)
	}
}
