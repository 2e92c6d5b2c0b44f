package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionAnswer{Version: a.version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				if v.Version == "" {
					v.Version = info.Main.Version
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			return out.print(a, v, func() {
				a.println("kubectl ctrlrun", v.Version, v.Commit, v.Go, v.Platform)
			})
		},
	}
	out.addTo(cmd)
	return cmd
}

type versionAnswer struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}
