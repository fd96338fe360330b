package vercel

import "time"

// SetSilence makes a provider ask sooner about a log that is silent.
func SetSilence(p *Provider, d time.Duration) { p.silence = d }
