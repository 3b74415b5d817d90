// Package release is a part of dispatch.
package release

import (
	"dispatch.example/dispatch/domain"
	"dispatch.example/dispatch/policy"
	"dispatch.example/dispatch/whitelist"
)

// Document is the configuration as people write and review it.
type Document struct {
	AbsentIDs []string `json:"absent_ids,omitempty"` // ids that count as absent; replaces whitelist.DefaultAbsent
	Apps      []App    `json:"apps"`
	Lists     []List   `json:"lists,omitempty"`
	Tables    []Table  `json:"tables,omitempty"`
}

// App is one system that asks for its domain.
type App struct {
	Key        string          `json:"key"`
	Default    bool            `json:"default,omitempty"`
	Name       string          `json:"name,omitempty"`
	Hosts      []string        `json:"hosts,omitempty"`
	Fallback   string          `json:"fallback"`
	SessionTTL Duration        `json:"session_ttl,omitempty"` // default 30m
	SessionMax Duration        `json:"session_max,omitempty"` // default 12h
	BucketBy   policy.BucketBy `json:"bucket_by,omitempty"`
	Identity   Identity        `json:"identity,omitempty"`
	IDCase     string          `json:"id_case,omitempty"` // exact (default) | fold
	Regions    []domain.Region `json:"regions"`
	Origins    []policy.Origin `json:"origins,omitempty"`
	Policies   []policy.Policy `json:"policies,omitempty"`
	Otherwise  policy.Action   `json:"otherwise"`
}

// Identity says from whom an id is believed: trusted_proxy or open.
type Identity struct {
	User   string `json:"user,omitempty"`   // default trusted_proxy
	Device string `json:"device,omitempty"` // default open
}

// List names a list and who answers for it. IDs nil leaves the stored ids as
// they are; present, even empty, is an import. At publish they leave the document and
// Digest and Count stay.
type List struct {
	Key     string       `json:"key"`
	Of      whitelist.Of `json:"of"`
	Owner   string       `json:"owner,omitempty"`
	Expires string       `json:"expires,omitempty"` // YYYY-MM-DD; warns, then blocks publishing; never changes an answer
	IDs     *[]string    `json:"ids,omitempty"`
	Digest  string       `json:"digest,omitempty"` // of the list's index
	Count   int          `json:"count,omitempty"`
}

// Table names an uploaded address table. File is for clients, which upload it;
// the server opens no path from a document and knows only Digest.
type Table struct {
	Key    string `json:"key"`
	File   string `json:"file,omitempty"`
	Digest string `json:"digest,omitempty"`
}
