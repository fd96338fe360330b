package lambda

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/sandjet/sandjet/schemas"
)

// again is whether a request is retried after an answer which says that nothing was started.
type again int

const (
	never   again = iota
	once          // after a moment
	patient       // until patience is over, or as Retry-After says
	waking        // until wakeTime is over, likewise
)

const (
	// patience is how long a run waits for its turn in all.
	patience = 20 * time.Second
	// wakeTime is how long a run waits for a function that AWS prepares: after weeks without calls that takes a minute or two.
	wakeTime = 2 * time.Minute
)

// row is the meaning of an answer of Lambda which says that no command was started.
type row struct {
	code  schemas.Code
	again again
	says  string
}

// table returns the meaning of an error of Lambda that was returned before anything was started, by Lambda's name for it. Other errors,
// except refusals (4xx), may be returned after the start and are not retried.
func table(kind string) (row, bool) {
	const setup = "the function or its settings are wrong: \"sandjet doctor\" explains"
	switch kind {
	case "TooManyRequestsException", "ThrottlingException", "Throttling":
		return row{schemas.Exhausted, patient, "as many functions run on Lambda as may: try later, or ask AWS for more"}, true
	case "EC2ThrottledException", "ENILimitReachedException", "SubnetIPAddressLimitReachedException":
		return row{schemas.Exhausted, patient, "the network of the function has no room: try later, or give it larger subnets"}, true
	case "S3FilesMountConnectivityException", "S3FilesMountFailureException", "S3FilesMountTimeoutException",
		"EFSMountConnectivityException", "EFSMountFailureException", "EFSMountTimeoutException":
		return row{schemas.Unavailable, once, "the file system of workspaces could not be mounted"}, true
	case "ResourceConflictException", "ResourceNotReadyException", "ENINotReadyException", "CodeArtifactUserPendingException",
		"CodeArtifactUserDeletedException":
		return row{schemas.Unavailable, waking, "AWS prepares the function, as after weeks without calls or a change: try again in some " +
			"minutes; \"sandjet doctor\" shows its state"}, true
	case "EC2UnexpectedException":
		return row{schemas.Unavailable, once, "the network of the function could not be set up: try later"}, true
	case "CodeArtifactUserFailedException":
		return row{schemas.Unsupported, never, "AWS cannot use the image of the function: \"sandjet doctor\" explains"}, true
	case "ServiceQuotaExceededException":
		return row{schemas.Exhausted, never, "a quota of the AWS account is used up: ask AWS for more"}, true
	case "RequestTooLargeException", "RequestEntityTooLargeException":
		return row{schemas.Invalid, never, tooLarge}, true
	case "ResourceNotFoundException":
		return row{schemas.Unsupported, never, "there is no such function: \"sandjet doctor\" explains"}, true
	case "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "ExpiredToken", "InvalidSignatureException",
		"SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed", "MissingAuthenticationTokenException",
		"IncompleteSignatureException", "InvalidClientTokenId", "OptInRequired", "NotAuthorized", "EC2AccessDeniedException":
		return row{schemas.Denied, never, "AWS does not let this worker run the function: \"sandjet doctor\" explains"}, true
	case "InvalidParameterValueException", "InvalidRequestContentException", "UnsupportedMediaTypeException", "InvalidRuntimeException",
		"InvalidSecurityGroupIDException", "InvalidSubnetIDException", "InvalidZipFileException", "KMSAccessDeniedException",
		"KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException", "RecursiveInvocationException":
		return row{schemas.Unsupported, never, setup}, true
	default:
		return row{}, false
	}
}

const tooLarge = "the command with its input and variables is larger than an invocation may be (6 MiB): " +
	"put large files into the workspace by smaller calls"

// throttled returns the message for the case that as many functions run as allowed.
func throttled(why types.ThrottleReason) string {
	switch why {
	case types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded,
		types.ThrottleReasonReservedFunctionInvocationRateLimitExceeded:
		return "as many of this function run as its reserved concurrency allows: try later, or raise it (Concurrency of the stack)"
	case types.ThrottleReasonCallerRateLimitExceeded:
		return "AWS takes no more requests of this worker's account at the moment: try later"
	default:
		return "as many functions run on Lambda as may: try later, or ask AWS for more"
	}
}

// judge returns the meaning of an invocation's error. Known is false if the command may have been started. Sent says whether the request
// may have arrived.
func judge(err error, sent bool) (r row, known bool) {
	if e, ok := errors.AsType[credentialsError](err); ok {
		return e.row(), true
	}
	if e, ok := errors.AsType[*types.TooManyRequestsException](err); ok {
		r, _ := table("TooManyRequestsException")
		r.says = throttled(e.Reason)
		return r, true
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		if r, ok := table(e.ErrorCode()); ok {
			return r, true
		}
		if e.ErrorCode() == "EFSIOException" { // 410, and of a file system that the command may have used
			return row{}, false
		}
	}
	switch status := statusOf(err); {
	case status == http.StatusTooManyRequests:
		return table("TooManyRequestsException")
	case status == http.StatusRequestEntityTooLarge:
		return table("RequestTooLargeException")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return table("AccessDeniedException")
	case status >= 400 && status < 500:
		return table("InvalidParameterValueException")
	case status == 0 && !sent:
		return row{schemas.Unavailable, once, "Lambda cannot be reached"}, true
	}
	return row{}, false
}

// credentialsError reports that the worker could not get its credentials, so that no request was sent to Lambda.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// row returns the meaning of the error. A refusal by AWS is permanent; all other causes, such as a slow service of the host, may be
// temporary.
func (e credentialsError) row() row {
	if status := statusOf(e.error); status >= 400 && status < 500 && status != http.StatusTooManyRequests {
		return row{schemas.Denied, never, "AWS does not give this worker its credentials: \"sandjet doctor\" explains"}
	}
	return row{schemas.Unavailable, once, "this worker cannot get credentials of AWS: \"sandjet doctor\" explains"}
}

// statusOf returns the HTTP status that err reports; 0 if there is none.
func statusOf(err error) int {
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok && e.Response != nil {
		return e.HTTPStatusCode()
	}
	return 0
}

// retryAfter returns the delay that Lambda asks for before a retry; 0 if it does not say.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok && e.Response != nil {
		if n, err := strconv.ParseFloat(e.Response.Header.Get("Retry-After"), 64); err == nil && n > 0 && n < 3600 {
			return time.Duration(n * float64(time.Second))
		}
	}
	return 0
}

// skew returns how far this host's clock is ahead of AWS's, by an answer's date; 0 if it is at most a minute or unknown.
func skew(err error, now time.Time) time.Duration {
	e, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || e.Response == nil {
		return 0
	}
	there, err := http.ParseTime(e.Response.Header.Get("Date"))
	if d := now.Sub(there); err == nil && d.Abs() > time.Minute {
		return d.Round(time.Second)
	}
	return 0
}

// notStarted returns the error for a run that was not started.
func notStarted(r row, err error) error {
	says := r.says
	if r.code == schemas.Denied {
		switch d := skew(err, time.Now()); {
		case d > 0:
			says = "AWS does not let this worker in, whose clock is " + d.String() + " fast: set it right"
		case d < 0:
			says = "AWS does not let this worker in, whose clock is " + (-d).String() + " slow: set it right"
		}
	}
	return schemas.Wrap(r.code, "run", says, err)
}

// failed returns the meaning of a function's error: timedOut if the function reached its time limit; unstarted if its program failed to
// start, so that no command was started; neither if its environment has died, or its answer could not be sent.
func failed(kind, text string) (timedOut, unstarted bool) {
	switch {
	case kind == "Sandbox.Timedout", kind == "" && strings.Contains(text, "Task timed out after"):
		return true, false
	case kind == "Runtime.InvalidEntrypoint", kind == "Runtime.ImportModuleError", kind == "Runtime.ExtensionInitError",
		kind == "Extension.InitError", kind == "Runtime.InvalidWorkingDir", kind == "Runtime.InvalidTaskConfig":
		return false, true
	}
	return false, false
}
