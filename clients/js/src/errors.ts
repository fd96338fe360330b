import type { Problem } from "./wire.js";

/** SandjetError is a failure that will not pass by itself, in the gateway's own words and code. */
export class SandjetError extends Error {
  /** code is one of the gateway's (invalid, not_found, conflict, denied, exhausted, …), or closed. */
  readonly code: string;
  /** field names the part of the request at fault, if one is. */
  readonly field: string | undefined;

  constructor(code: string, message: string, field?: string) {
    super(message);
    this.name = "SandjetError";
    this.code = code;
    this.field = field;
  }
}

/** fromProblem turns what the gateway answered into an error. */
export function fromProblem(p: Problem | undefined): SandjetError {
  return new SandjetError(p?.code ?? "internal", p?.message ?? "the gateway did not say why", p?.field);
}

/** isPassing says of a code that the same request may succeed a little later. */
export function isPassing(code: string | undefined): boolean {
  return code === "unavailable" || code === "interrupted";
}
