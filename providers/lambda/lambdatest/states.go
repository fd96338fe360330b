//go:build linux

package lambdatest

import "github.com/aws/aws-sdk-go-v2/service/lambda/types"

// State is the state that the service reports for a function. The zero value is that of an active function.
type State struct {
	State      types.State
	Code       types.StateReasonCode // why
	Reason     string
	Update     types.LastUpdateStatus // of its last change; while that is in progress, and after it has failed, what it was before is invoked
	UpdateCode types.LastUpdateStatusReasonCode
	// Wake is how many invocations a function that is pending refuses until it is active; 0: all. One that is inactive becomes pending with
	// the first invocation, which it refuses.
	Wake int
}

// SetState sets the state of a function.
func (s *Service) SetState(name string, to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[name] = &to
}

// state returns the current state of a function.
func (s *Service) state(name string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.states[name]; of != nil {
		return *of
	}
	return State{}
}

// notReady returns the error with which a function refuses invocations; empty if it accepts them. The errors of inactive functions with an
// image were observed on the service: see aws-cdk 20123 and boto3 3788.
func (s *Service) notReady(name string) (kind, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.states[name]
	if of == nil {
		return "", ""
	}
	const initializing = "Lambda is initializing your function. It will be ready to invoke shortly."
	switch of.State {
	case "", types.StateActive:
		return "", ""
	case types.StateInactive:
		of.State, of.Code, of.Reason = types.StatePending, types.StateReasonCodeRestoring, "The function is being restored."
		return "CodeArtifactUserPendingException", initializing
	case types.StatePending:
		if of.Wake--; of.Wake == 0 {
			delete(s.states, name)
		}
		if of.Code == types.StateReasonCodeCreating {
			return "ResourceConflictException",
				"The operation cannot be performed at this time. The function is currently in the following state: Pending"
		}
		return "CodeArtifactUserPendingException", initializing
	case types.StateFailed:
		return "CodeArtifactUserFailedException", "Lambda cannot initialize the provided container image. Verify the image."
	default:
		return "ResourceConflictException",
			"The operation cannot be performed at this time. The function is currently in the following state: " + string(of.State)
	}
}

// describe adds a state to the settings of its function.
func (s State) describe(settings map[string]any) {
	settings["State"], settings["LastUpdateStatus"] = types.StateActive, types.LastUpdateStatusSuccessful
	for name, value := range map[string]string{
		"State": string(s.State), "StateReasonCode": string(s.Code), "StateReason": s.Reason,
		"LastUpdateStatus": string(s.Update), "LastUpdateStatusReasonCode": string(s.UpdateCode),
	} {
		if value != "" {
			settings[name] = value
		}
	}
}
