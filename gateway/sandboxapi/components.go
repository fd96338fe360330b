package sandboxapi

import "reflect"

// Components returns the types of these routes for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"SandboxExecute": reflect.TypeFor[ExecuteRequest](), "SandboxBash": reflect.TypeFor[BashRequest](),
		"SandboxRead": reflect.TypeFor[ReadRequest](), "SandboxReadBinary": reflect.TypeFor[ReadBinaryRequest](),
		"SandboxWrite": reflect.TypeFor[WriteRequest](), "SandboxGrep": reflect.TypeFor[GrepRequest](),
		"SandboxGlob": reflect.TypeFor[GlobRequest](), "SandboxCopy": reflect.TypeFor[CopyRequest](),
		"SandboxCopyFile": reflect.TypeFor[CopyFile](), "SandboxEnvelope": reflect.TypeFor[Envelope](),
		"SandboxPending": reflect.TypeFor[Pending](), "SandboxReadAnswer": reflect.TypeFor[ReadAnswer](),
		"SandboxBinary": reflect.TypeFor[BinaryAnswer](), "SandboxWritten": reflect.TypeFor[WriteAnswer](),
		"SandboxGrepAnswer": reflect.TypeFor[GrepAnswer](), "SandboxGrepMatch": reflect.TypeFor[GrepMatch](),
		"SandboxGlobAnswer": reflect.TypeFor[GlobAnswer](), "SandboxGlobPath": reflect.TypeFor[GlobPath](),
		"SandboxCopied": reflect.TypeFor[CopyAnswer](), "SandboxCopyResult": reflect.TypeFor[CopyResult](),
		"SandboxLS": reflect.TypeFor[LSRequest](), "SandboxLSAnswer": reflect.TypeFor[LSAnswer](),
		"SandboxLSPath":      reflect.TypeFor[LSPath](),
		"SandboxSessionList": reflect.TypeFor[SessionList](), "SandboxSession": reflect.TypeFor[Session](),
		"SandboxArtifact":  reflect.TypeFor[Artifact](),
		"SandboxDestroyed": reflect.TypeFor[Destroyed](), "TooManySessions": reflect.TypeFor[TooManySessions](),
		"TooManySessionsError": reflect.TypeFor[TooManySessionsError](),
	}
}
