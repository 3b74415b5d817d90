package house

import (
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
)

// mariaDBWords are SQL that MariaDB knows and MySQL does not.
var mariaDBWords = regexp.MustCompile(`(?i)\bRETURNING\b|CREATE\s+OR\s+REPLACE\s+TABLE|\bNEXTVAL\b|CREATE\s+SEQUENCE|SYSTEM\s+VERSIONING` +
	`|(ADD|DROP|MODIFY|CHANGE)\s+(COLUMN|INDEX|KEY|CONSTRAINT|FOREIGN\s+KEY)\s+IF\s+(NOT\s+)?EXISTS|CREATE\s+(UNIQUE\s+)?INDEX\s+IF\s+NOT\s+EXISTS` +
	`|\b(INET4|INET6|UUID)\s+(NOT\s+NULL|NULL|PRIMARY|DEFAULT|,)|utf8mb4_nopad_bin|utf8mb4_uca1400`)

// mariaDBOnly holds that the MySQL migrations run on MySQL, although the tests have MariaDB.
func mariaDBOnly(r *Repo) []Finding {
	return r.lines(func(name, line string) string {
		if !within(name, "migrations/mysql") {
			return ""
		}
		if word := mariaDBWords.FindString(line); word != "" {
			return word + " is SQL of MariaDB alone; write what MySQL 8 knows too"
		}
		return ""
	})
}

// machinePaths are folders of one person's machine or of one build machine.
var machinePaths = regexp.MustCompile(`(^|[^\w.*}-])/((work|root)/|(home|Users)/[a-z])`)

// machineWords holds that nothing of the machine it was written on stays behind:
// neither its folders nor the mirrors that its environment names.
func machineWords(r *Repo) []Finding {
	return machineWordsOf(r, mirrors(os.Environ()))
}

func machineWordsOf(r *Repo, hosts []string) []Finding {
	return r.lines(func(_, line string) string {
		if word := machinePaths.FindString(line); word != "" {
			return "the path " + strings.TrimSpace(word) + " exists on one machine; make it relative, or take it from a flag"
		}
		for _, host := range hosts {
			if strings.Contains(line, host) {
				return "the mirror " + host + " is known on this machine; take it from the environment"
			}
		}
		return ""
	})
}

// mirrors are the hosts of package mirrors and proxies that an environment names.
func mirrors(environ []string) (hosts []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name)
		if !strings.Contains(name, "PROXY") && !strings.Contains(name, "REGISTRY") && !strings.Contains(name, "INDEX_URL") {
			continue
		}
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
			u, err := url.Parse(part)
			if err == nil && strings.Contains(u.Hostname(), ".") && u.Hostname() != "127.0.0.1" {
				hosts = append(hosts, u.Hostname())
			}
		}
	}
	return hosts
}

// link is a Markdown link or image to something that is no URL.
var link = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)\s]*)?\)`)

// links holds that documentation points at files that exist.
func links(r *Repo) []Finding {
	return r.lines(func(name, line string) string {
		if !strings.HasSuffix(name, ".md") {
			return ""
		}
		for _, match := range link.FindAllStringSubmatch(line, -1) {
			target := path.Join(path.Dir(name), match[1])
			if strings.HasPrefix(match[1], "/") {
				target = strings.TrimPrefix(match[1], "/")
			}
			if !r.exists(target) {
				return "the link to " + match[1] + " leads nowhere"
			}
		}
		return ""
	})
}

// exists says whether a file or folder is there.
func (r *Repo) exists(target string) bool {
	if r.Paths[target] {
		return true
	}
	for name := range r.Paths {
		if within(name, target) {
			return true
		}
	}
	return false
}

// decisionRecords holds the form of docs/adr: what was chosen, what was not and
// why, what it costs, and what would make us choose again.
func decisionRecords(r *Repo) (found []Finding) {
	for name, text := range r.Texts {
		if ok, _ := path.Match("docs/adr/[0-9]*.md", name); !ok {
			continue
		}
		for _, part := range []string{"\nstatus: ", "\nDecision: ", "\nConsidered: ", "\nCosts: ", "\nUndo when: "} {
			if !strings.Contains(text, part) {
				found = append(found, Finding{name, 1, "no line begins with " + strings.TrimSpace(part) + "; see docs/adr/README.md for the form"})
			}
		}
	}
	return found
}

// lines calls problem for each line of text; what it answers is a finding.
func (r *Repo) lines(problem func(name, line string) string) (found []Finding) {
	for name, text := range r.Texts {
		n := 0
		for line := range strings.Lines(text) {
			n++
			if p := problem(name, strings.TrimRight(line, "\r\n")); p != "" {
				found = append(found, Finding{name, n, p})
			}
		}
	}
	return found
}
