package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// assets are the style sheet, the script and the icon, by the name in their path,
// which changes with what they hold: browsers keep them for ever.
type assets map[string]asset

type asset struct {
	kind         string
	plain, small []byte
}

func readAssets(files fs.FS) (assets, error) {
	names, err := fs.Glob(files, "static/*")
	if err != nil {
		return nil, err
	}
	a := assets{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var small bytes.Buffer
		w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, fmt.Errorf("compress %s: %w", name, err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("compress %s: %w", name, err)
		}
		sum := sha256.Sum256(text)
		ext := path.Ext(name)
		a[strings.TrimSuffix(path.Base(name), ext)+"-"+hex.EncodeToString(sum[:6])+ext] = asset{mime.TypeByExtension(ext), text, small.Bytes()}
	}
	return a, nil
}

// path is where the asset of a plain name is served.
func (a assets) path(plain string) (string, error) {
	stem, ext := strings.TrimSuffix(plain, path.Ext(plain)), path.Ext(plain)
	for name := range a {
		if strings.HasPrefix(name, stem+"-") && path.Ext(name) == ext {
			return "/static/" + name, nil
		}
	}
	return "", fmt.Errorf("static/%s does not exist", plain)
}

// ServeHTTP answers with one asset.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got, ok := a[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", got.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Vary", "Accept-Encoding")
	body := got.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		body = got.small
	}
	_, _ = w.Write(body) // the caller has gone
}
