package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// told are the files that tell people what to run.
var told = []string{"docs/runbooks/*.md", "docs/metrics.md", "config/prometheus/prometheusrule.yaml"}

var (
	// A command ends with its line, or where a sentence goes on.
	ctrlrunCommand = regexp.MustCompile("kubectl ctrlrun ([^`\n]*)")
	// Prose that follows a command in a table or a sentence begins with a period, a parenthesis or a dash.
	proseFollows = regexp.MustCompile(`[.,;:|>(#].*$`)
	plainWord    = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

var _ = Describe("the commands that alerts and runbooks name", func() {
	It("exist in kubectl ctrlrun, with their flags", func(ctx SpecContext) {
		plugin := filepath.Join(env.Root, "bin", "kubectl-ctrlrun")
		Expect(plugin).To(BeAnExistingFile(), "`make build` puts it there")
		seen := map[string]bool{}
		for _, pattern := range told {
			files, err := filepath.Glob(filepath.Join(env.Root, filepath.FromSlash(pattern)))
			Expect(err).NotTo(HaveOccurred())
			Expect(files).NotTo(BeEmpty(), pattern)
			for _, file := range files {
				text, err := os.ReadFile(file)
				Expect(err).NotTo(HaveOccurred())
				for _, m := range ctrlrunCommand.FindAllStringSubmatch(string(text), -1) {
					words, flags := split(m[1])
					key := strings.Join(append(words, flags...), " ")
					if seen[key] || len(words) == 0 {
						continue
					}
					seen[key] = true
					help, err := exec.CommandContext(ctx, plugin, append(words, "--help")...).CombinedOutput()
					Expect(err).NotTo(HaveOccurred(), "%s: %s", file, help)
					// Of a command that is not there the plugin shows the help of what is above it.
					Expect(string(help)).To(MatchRegexp(`(?m)^  kubectl ctrlrun %s([ |]|$)`, strings.Join(words, ` ([a-z]+\|)*`)), "%s: %s", file, m[0])
					for _, flag := range flags {
						Expect(string(help)).To(MatchRegexp(`(?m)^ +(-\w, )?%s\b|^ +%s, `, flag, flag), "%s: %s", file, m[0])
					}
				}
			}
		}
		Expect(len(seen)).To(BeNumerically(">", 10), "%v", seen)
	})
})

// split gives the words of a command up to its first argument, and the names of its flags.
func split(command string) (words, flags []string) {
	fields := strings.Fields(command)
	for i, field := range fields {
		if strings.HasPrefix(field, "#") || field == ">" || field == "|" {
			fields = fields[:i]
			break
		}
	}
	arguments := false
	for _, field := range fields {
		if strings.HasPrefix(field, "-") {
			arguments = true
			name, _, _ := strings.Cut(proseFollows.ReplaceAllString(field, ""), "=")
			flags = append(flags, name)
			continue
		}
		word := proseFollows.ReplaceAllString(field, "")
		if arguments = arguments || !plainWord.MatchString(word) || len(words) == 2; !arguments {
			words = append(words, word)
		}
	}
	return words, flags
}
