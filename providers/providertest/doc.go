// Package providertest is the conformance suite of package providers, and two providers to test
// other things with: [Bare] runs commands for real but isolates nothing, [Noop] runs nothing.
//
// A provider's own test is five lines:
//
//	func TestConformance(t *testing.T) {
//		providertest.Test(t, func(tb testing.TB) providers.Provider { return mine.New(tb.TempDir()) })
//	}
package providertest
