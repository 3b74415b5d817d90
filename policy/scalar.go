package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Words of Origin in a document.
const (
	originHint    = "hint"
	originReplica = "replica"
)

// UnmarshalText reads a bare string as a list of one.
func (s *Strings) UnmarshalText(text []byte) error {
	*s = Strings{string(text)}
	return nil
}

// UnmarshalJSON reads a string or a list of strings.
func (s *Strings) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte{'"'}) {
		var one string
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		*s = Strings{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(s))
}

// UnmarshalText reads the bare words hint and replica.
func (o *Origin) UnmarshalText(text []byte) error {
	switch word := string(text); word {
	case originHint:
		*o = Origin{Hint: true}
	case originReplica:
		*o = Origin{Replica: true}
	default:
		return fmt.Errorf("%q is no origin; write hint, replica, {table: KEY} or {geoip: …}", word)
	}
	return nil
}

// UnmarshalJSON reads a bare word or an object. Unknown members are errors, as
// everywhere in a document.
func (o *Origin) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte{'"'}) {
		var word string
		if err := json.Unmarshal(data, &word); err != nil {
			return err
		}
		return o.UnmarshalText([]byte(word))
	}
	type plain Origin // without this method
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	var read plain
	if err := strict.Decode(&read); err != nil {
		return err
	}
	*o = Origin(read)
	return nil
}

// MarshalJSON writes the bare word where there is one.
func (o Origin) MarshalJSON() ([]byte, error) {
	switch o {
	case Origin{Hint: true}:
		return json.Marshal(originHint)
	case Origin{Replica: true}:
		return json.Marshal(originReplica)
	}
	type plain Origin
	return json.Marshal(plain(o))
}
